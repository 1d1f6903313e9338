//! From the number on the wire to a position in the stream.
//!
//! The wire carries `width` bits, the stream counts in `u64`. The link between the two is `next`,
//! one more than the highest position accepted so far: a wire number is read as the position
//! nearest to `next` that ends in these bits.
#![forbid(unsafe_code)]

/// Where the stream stands, and how a wire number relates to it. Pure arithmetic, no policy.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// One more than the highest extended sequence accepted.
    next: u64,
    /// `2^width − 1`.
    mask: u64,
    /// Largest forward step that needs no confirmation.
    step: u64,
}

impl Position {
    /// A stream that begins at the wire number `first`: its extended sequence is the wire value.
    #[must_use]
    pub const fn new(first: u32, width: u32, step: u32) -> Self {
        let mask = if width >= 32 { u32::MAX as u64 } else { (1 << width) - 1 };
        Self { next: first as u64 & mask, mask, step: step as u64 }
    }

    /// One more than the highest extended sequence accepted.
    #[must_use]
    #[inline]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Size of the number space, `2^width`.
    #[must_use]
    #[inline]
    pub const fn space(&self) -> u64 {
        self.mask + 1
    }

    /// Largest forward distance that needs no confirmation.
    #[must_use]
    #[inline]
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// `a − b` on the circle, in `0..2^width`.
    #[inline]
    const fn forward(&self, a: u64, b: u64) -> u64 {
        a.wrapping_sub(b) & self.mask
    }

    /// How `wire` lies to `next`: at or after it, or behind it, by how much. Half of the space
    /// counts as behind.
    #[must_use]
    #[inline]
    pub const fn locate(&self, wire: u32) -> Distance {
        let ahead = self.forward(wire as u64, self.next);
        if ahead <= self.mask >> 1 {
            Distance::Ahead(ahead)
        } else {
            Distance::Behind(self.space() - ahead)
        }
    }

    /// The position of `wire` if it is at most one step from `next`, ahead or behind; one before
    /// the beginning of the stream wraps around, to the far end of the `u64`.
    #[must_use]
    #[inline]
    pub const fn within_step(&self, wire: u32) -> Option<u64> {
        let lowest = self.next.wrapping_sub(self.step);
        let above = self.forward(wire as u64, lowest);
        if above <= 2 * self.step { Some(lowest.wrapping_add(above)) } else { None }
    }

    /// How far `wire` lies ahead of `next` when everything is read forward, in `0..2^width`.
    #[must_use]
    #[inline]
    pub const fn read_forward(&self, wire: u32) -> u64 {
        self.forward(wire as u64, self.next)
    }

    /// Whether `a` and `b` are within one step of each other, in either direction.
    #[must_use]
    #[inline]
    pub const fn agree(&self, a: u32, b: u32) -> bool {
        let d = self.forward(a as u64, b as u64);
        d <= self.step || self.space() - d <= self.step
    }

    /// The position of `wire`, given that `anchor_wire` is at `anchor`: the nearest one. `None`
    /// before the beginning of the stream.
    #[must_use]
    pub const fn near(&self, wire: u32, anchor_wire: u32, anchor: u64) -> Option<u64> {
        let d = self.forward(wire as u64, anchor_wire as u64);
        if d <= self.mask >> 1 {
            Some(anchor.wrapping_add(d))
        } else {
            anchor.checked_sub(self.space() - d)
        }
    }

    /// The position `extended` was accepted.
    #[inline]
    pub const fn accept(&mut self, extended: u64) {
        if extended >= self.next {
            // 2^64 packets do not arrive in this universe; wrapping keeps the path free of panics.
            self.next = extended.wrapping_add(1);
        }
    }
}

/// Where a wire number lies, seen from `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// At `next + d`.
    Ahead(u64),
    /// At `next − d`, `d ≥ 1`.
    Behind(u64),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    #[test]
    fn the_far_half_of_the_space_is_behind() {
        let p = Position::new(0, 4, 2);
        assert_eq!(p.locate(0), Distance::Ahead(0));
        assert_eq!(p.locate(7), Distance::Ahead(7));
        assert_eq!(p.locate(8), Distance::Behind(8));
        assert_eq!(p.locate(15), Distance::Behind(1));
    }

    #[test]
    fn width_32_keeps_its_last_number() {
        let mut p = Position::new(u32::MAX, 32, 2048);
        assert_eq!(p.next(), u64::from(u32::MAX));
        p.accept(u64::from(u32::MAX));
        assert_eq!(p.locate(0), Distance::Ahead(0));
        assert_eq!(p.locate(u32::MAX), Distance::Behind(1));
    }

    #[test]
    fn nothing_is_read_below_zero() {
        let p = Position::new(3, 8, 2);
        assert_eq!(p.near(3, 5, 1), None);
        assert_eq!(p.near(4, 5, 1), Some(0));
    }

    #[test]
    fn numbers_agree_within_a_step_on_either_side_of_the_wrap() {
        let p = Position::new(0, 4, 2);
        let agree: Vec<u32> = (0..16).filter(|&wire| p.agree(wire, 1)).collect();
        assert_eq!(agree, [0, 1, 2, 3, 15]);
    }

    proptest! {
        #[test]
        fn locate_inverts_the_wire(width in 2u32..=32, next in any::<u64>(), d in any::<u64>()) {
            let mask = (1u64 << width) - 1;
            let next = next >> 8;
            let mut p = Position::new(0, width, 1);
            p.next = next;
            let ahead = d & (mask >> 1);
            let wire = u32::try_from((next + ahead) & mask).unwrap();
            prop_assert_eq!(p.locate(wire), Distance::Ahead(ahead));
            let behind = (d & (mask >> 1)) + 1;
            if let Some(at) = next.checked_sub(behind) {
                let wire = u32::try_from(at & mask).unwrap();
                prop_assert_eq!(p.locate(wire), Distance::Behind(behind));
            }
        }

        #[test]
        fn within_a_step_is_what_locate_says(
            width in 1u32..=32, next in any::<u64>(), wire in any::<u32>(), near in -40i64..40,
        ) {
            // A step is at most an eighth of the space, and at least 1.
            let step = u32::try_from(((1u64 << width) / 8).clamp(1, 32)).unwrap();
            let mut p = Position::new(0, width, step);
            p.next = next >> 8;
            let mask = (1u64 << width) - 1;
            let near = p.next.wrapping_add_signed(near) & mask;
            for wire in [u32::try_from(near).unwrap(), wire & u32::try_from(mask).unwrap()] {
                let expect = match p.locate(wire) {
                    Distance::Ahead(d) if d <= p.step => Some(p.next + d),
                    Distance::Behind(d) if d <= p.step => Some(p.next.wrapping_sub(d)),
                    _ => None,
                };
                prop_assert_eq!(p.within_step(wire), expect);
            }
        }

        #[test]
        fn agreement_is_symmetric(
            width in 3u32..=32,
            a in any::<u32>(),
            b in any::<u32>(),
            step in 1u32..64,
        ) {
            let p = Position::new(0, width, step);
            prop_assert_eq!(p.agree(a, b), p.agree(b, a));
            prop_assert!(p.agree(a, a));
        }
    }
}
