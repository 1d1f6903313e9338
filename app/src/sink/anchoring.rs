//! Whether the place of an image in the data set is certain.
//!
//! A packet tells its sequence number, and the number space may be smaller than the data set. The
//! index of an image is right from the start of the stream on; joined later, or after the sender
//! started again, it is right only up to whole number spaces.

use std::fmt;

use tensorwire_core::geometry::Geometry;
use tensorwire_core::pipeline::Anchor;

/// The rule for one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchoring {
    /// A first number up to this is one of the start, out of order or behind a loss.
    step: u64,
    /// Numbers of the sequence field.
    space: u64,
    /// Packets of one pass over the data set, where that is known.
    pass: Option<u64>,
    /// The pass is sent once: none of its numbers is used twice if they are as many.
    once: bool,
}

/// Why an index is not certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncertain {
    /// The stream was joined in its middle.
    Join {
        /// Wire number of the first packet.
        wire: u32,
    },
    /// The sender started again, or more than half the number space was lost.
    Discontinuity,
}

impl fmt::Display for Uncertain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join { wire } => write!(f, "the stream was joined at sequence number {wire}")?,
            Self::Discontinuity => f.write_str("the stream took another position")?,
        }
        f.write_str(", so the place of its images in the data set is not certain")
    }
}

impl Anchoring {
    /// The rule for a stream of this geometry, a pass of which has `pass_images` images; `once`
    /// says that the pass is sent only once.
    #[must_use]
    pub fn new(geometry: &Geometry, pass_images: Option<u64>, once: bool) -> Self {
        let size = u64::from(geometry.packets_per_image());
        Self {
            step: u64::from(geometry.step()),
            space: geometry.sequence_space(),
            pass: pass_images.map(|images| images.saturating_mul(size)),
            once,
        }
    }

    /// What makes the indices uncertain that rest on `anchor`; `None` when they are right.
    ///
    /// A join is certain near number 0, or where each number means one image: the number space is a
    /// whole number of passes, or a pass that is sent once fits into it. (A pass that is sent over
    /// and over begins at another number each time unless the passes fill the space.) After a
    /// discontinuity the position is read forward to the next that has the number, by whole number
    /// spaces; that does not change the place in the pass where a number space is a whole number of
    /// passes.
    #[must_use]
    pub fn doubt(&self, anchor: Anchor) -> Option<Uncertain> {
        let whole_passes = self.pass.is_some_and(|pass| self.space.checked_rem(pass) == Some(0));
        let covers = whole_passes || (self.once && self.pass.is_some_and(|p| self.space >= p));
        if u64::from(anchor.join) > self.step && !covers {
            return Some(Uncertain::Join { wire: anchor.join });
        }
        (anchor.discontinuities > 0 && !whole_passes).then_some(Uncertain::Discontinuity)
    }
}

#[cfg(test)]
mod tests {
    use tensorwire_core::geometry::GeometrySpec;

    use super::*;

    /// 12 bits are 4096 numbers, 32 images of 128 packets; a step is 512.
    fn doubt(pass: Option<u64>, join: u32, discontinuities: u64) -> Option<Uncertain> {
        rule(pass, false).doubt(Anchor { join, discontinuities })
    }

    fn rule(pass: Option<u64>, once: bool) -> Anchoring {
        let geometry = Geometry::new(&GeometrySpec::DOCUMENTED).expect("valid");
        Anchoring::new(&geometry, pass, once)
    }

    #[test]
    fn a_pass_that_is_sent_once_uses_no_number_twice_until_the_stream_breaks() {
        let middle = Anchor { join: 2_000, discontinuities: 0 };
        // 24 images do not fill the space of 32: sent over and over they shift with each pass.
        assert_eq!(rule(Some(24), true).doubt(middle), None);
        assert_eq!(rule(Some(24), false).doubt(middle), Some(Uncertain::Join { wire: 2_000 }));
        assert_eq!(rule(Some(33), true).doubt(middle), Some(Uncertain::Join { wire: 2_000 }));
        let broken = Anchor { join: 0, discontinuities: 1 };
        assert_eq!(rule(Some(24), true).doubt(broken), Some(Uncertain::Discontinuity));
    }

    #[test]
    fn a_join_near_the_start_or_in_a_space_that_covers_the_pass_is_certain() {
        for join in [0, 1, 512] {
            assert_eq!(doubt(Some(256), join, 0), None);
            assert_eq!(doubt(None, join, 0), None);
        }
        for join in [513, 4095] {
            assert_eq!(doubt(Some(256), join, 0), Some(Uncertain::Join { wire: join }));
            assert_eq!(doubt(Some(33), join, 0), Some(Uncertain::Join { wire: join }));
            assert_eq!(doubt(None, join, 0), Some(Uncertain::Join { wire: join }));
            assert_eq!(doubt(Some(32), join, 0), None);
            assert_eq!(doubt(Some(1), join, 0), None);
        }
    }

    #[test]
    fn a_new_position_keeps_the_place_where_passes_fill_the_number_space() {
        for (pass, certain) in [(32, true), (16, true), (24, false), (33, false), (256, false)] {
            assert_eq!(doubt(Some(pass), 0, 1).is_none(), certain, "a pass of {pass} images");
        }
        assert_eq!(doubt(None, 0, 1), Some(Uncertain::Discontinuity));
        assert_eq!(doubt(Some(0), 0, 1), Some(Uncertain::Discontinuity));
    }

    #[test]
    fn the_reason_is_a_sentence_without_full_stop() {
        let text = Uncertain::Join { wire: 777 }.to_string();
        assert_eq!(
            text,
            "the stream was joined at sequence number 777, so the place of its images in the data \
             set is not certain"
        );
    }
}
