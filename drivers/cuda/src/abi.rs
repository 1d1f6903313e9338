//! What the kernels take, as `kernels/cuda/abi.h` says it, which also says what the fields mean.
//! Sizes are asserted here and there.

/// A slot or packet that did not come (`TW_NONE`).
pub const NONE: u32 = u32::MAX;

/// Where packets lie.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// Address of `u64[count]`, or 0. An address of 0 in it = did not come.
    pub addresses: u64,
    /// First packet; used without `addresses`.
    pub base: u64,
    /// Address of `u32[count]`, or 0.
    pub index: u64,
    /// Bytes from one packet to the next.
    pub stride: u32,
    /// Packets.
    pub count: u32,
}

/// A big-endian number in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// Bit 0 is the most significant bit of byte 0.
    pub bit_offset: u32,
    /// 1 to 32; 0 = no such field.
    pub bit_width: u32,
}

/// What became of the packets of a launch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Placed.
    pub placed: u32,
    /// Its slot was taken.
    pub duplicate: u32,
    /// Of another batch.
    pub foreign: u32,
    /// A listed slot beyond the batch.
    pub refused: u32,
}

/// Reorder and convert: `tw_reorder_*` and `tw_copy`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReorderParams {
    /// The packets.
    pub packets: Packets,
    /// Address of `u32[count]`, or 0: slot order.
    pub slots: u64,
    /// The batch.
    pub out: u64,
    /// Arrival bitmap, or 0.
    pub arrived: u64,
    /// `_seq` kernels: who owns a slot.
    pub owners: u64,
    /// Address of a [`Counts`], or 0.
    pub counts: u64,
    /// `_affine` kernels: a and b of each channel.
    pub affine: u64,
    /// Bytes from a packet to its payload.
    pub payload_offset: u32,
    /// Bytes of a payload.
    pub payload_bytes: u32,
    /// Slots of the batch.
    pub slots_per_batch: u32,
    /// Bytes from slot to slot.
    pub slot_stride: u32,
    /// `_seq` kernels: the sequence.
    pub sequence: Field,
    /// `_seq` kernels: the number of the batch.
    pub batch: Field,
    /// `_seq` kernels: the batch that is taken.
    pub batch_number: u32,
    /// Not 0: elements of 16 and 32 bits are big-endian.
    pub network_order: u32,
    /// Where the reads of a warp begin; 0: its writes at lines instead.
    pub line_bytes: u32,
    /// `_affine` and `_nhwc` kernels.
    pub channels: u32,
    /// `_affine` and `_nhwc` kernels: elements of one channel of one image.
    pub plane: u32,
    /// 0.
    pub padding: u32,
}

/// Zeroes slots that did not arrive: `tw_zero_missing*`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroParams {
    /// The batch.
    pub out: u64,
    /// Arrival bitmap.
    pub arrived: u64,
    /// Address of a `u32` that counts, or 0.
    pub missing: u64,
    /// Slots of the batch.
    pub slots_per_batch: u32,
    /// Bytes from slot to slot.
    pub slot_stride: u32,
    /// Bytes of a slot that are zeroed.
    pub slot_bytes: u32,
    /// `_nhwc` only, as the next two.
    pub element_bytes: u32,
    /// Channels.
    pub channels: u32,
    /// Elements of one channel of one image.
    pub plane: u32,
}

/// Brings the first bytes of packets together: `tw_gather_headers`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatherParams {
    /// The packets.
    pub packets: Packets,
    /// Address of `u8[count * header_bytes]`.
    pub out: u64,
    /// Bytes of a header.
    pub header_bytes: u32,
    /// 0.
    pub padding: u32,
}

const _: () = {
    assert!(size_of::<Packets>() == 32);
    assert!(size_of::<Field>() == 8);
    assert!(size_of::<Counts>() == 16);
    assert!(size_of::<ReorderParams>() == 136);
    assert!(size_of::<ZeroParams>() == 48);
    assert!(size_of::<GatherParams>() == 48);
};

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../../../kernels/cuda/abi.h");

    /// The fields of a structure of the header, in order, as (C type, name).
    fn fields(name: &str) -> Vec<(String, String)> {
        let start = HEADER.find(&format!("typedef struct {name} {{")).expect("a structure");
        let body = &HEADER[start..][..HEADER[start..].find('}').expect("its end")];
        let declared = body.lines().map(str::trim);
        let declared = declared.filter(|l| l.starts_with("uint") || l.starts_with("Tw"));
        let declared = declared.filter_map(|line| line.split_once(';')?.0.rsplit_once(' '));
        declared.map(|(of, name)| (of.trim().to_owned(), name.to_owned())).collect()
    }

    /// Offset and size of each field, by the rules of C for these types.
    fn layout(name: &str) -> (Vec<(String, usize)>, usize) {
        let (mut at, mut widest, mut places) = (0_usize, 1, Vec::new());
        for (of, field) in fields(name) {
            let (size, align) = match of.as_str() {
                "uint64_t" => (8, 8),
                "uint32_t" => (4, 4),
                other => (layout(other).1, if other == "TwField" { 4 } else { 8 }),
            };
            at = at.next_multiple_of(align);
            widest = widest.max(align);
            places.push((field, at));
            at += size;
        }
        (places, at.next_multiple_of(widest))
    }

    macro_rules! same {
        ($c:literal, $rust:ty, $($field:ident),*) => {
            let (places, size) = layout($c);
            let ours = [$((stringify!($field), core::mem::offset_of!($rust, $field))),*];
            let ours: Vec<(String, usize)> =
                ours.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect();
            assert_eq!(places, ours, $c);
            assert_eq!(size, size_of::<$rust>(), $c);
        };
    }

    #[test]
    fn the_structures_are_those_of_the_header_field_by_field() {
        same!("TwPackets", Packets, addresses, base, index, stride, count);
        same!("TwField", Field, bit_offset, bit_width);
        same!("TwCounts", Counts, placed, duplicate, foreign, refused);
        same!(
            "TwReorder",
            ReorderParams,
            packets,
            slots,
            out,
            arrived,
            owners,
            counts,
            affine,
            payload_offset,
            payload_bytes,
            slots_per_batch,
            slot_stride,
            sequence,
            batch,
            batch_number,
            network_order,
            line_bytes,
            channels,
            plane,
            padding
        );
        same!(
            "TwZero",
            ZeroParams,
            out,
            arrived,
            missing,
            slots_per_batch,
            slot_stride,
            slot_bytes,
            element_bytes,
            channels,
            plane
        );
        same!("TwGather", GatherParams, packets, out, header_bytes, padding);
    }

    #[test]
    fn the_header_asserts_the_same_sizes() {
        for (name, size) in [
            ("TwPackets", size_of::<Packets>()),
            ("TwField", size_of::<Field>()),
            ("TwCounts", size_of::<Counts>()),
            ("TwReorder", size_of::<ReorderParams>()),
            ("TwZero", size_of::<ZeroParams>()),
            ("TwGather", size_of::<GatherParams>()),
        ] {
            assert!(HEADER.contains(&format!("TW_SIZE({name}, {size});")), "{name}: {size}");
        }
        assert!(HEADER.contains("#define TW_NONE 0xffffffffu"));
    }
}
