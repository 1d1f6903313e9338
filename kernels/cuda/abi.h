/* What a launcher passes to the kernels: one structure by value, the same for every kernel of a kind.
 *
 * Plain C, so that any language can mirror it. Addresses are device addresses in 64 bits (pinned host
 * memory has one, too); 0 means "none" where the comment says so. Numbers are checked by the launcher:
 * a kernel trusts them, except the slot of a packet, which may come from the wire.
 */
#ifndef TENSORWIRE_ABI_H
#define TENSORWIRE_ABI_H

#include <stdint.h>

/* A packet number or a slot that stands for "this packet did not come". */
#define TW_NONE 0xffffffffu

/* Where packets lie. Packet `i` is at `addresses[i]`, or, without that list, at
 * `base + stride * index[i]`, or `base + stride * i` without an index either. */
typedef struct TwPackets {
    uint64_t addresses; /* u64[count], or 0. An address of 0 = did not come (slot-major only). */
    uint64_t base;      /* First packet; used without `addresses`. */
    uint64_t index;     /* u32[count], or 0. TW_NONE = did not come (slot-major only). */
    uint32_t stride;    /* Bytes from one packet to the next. */
    uint32_t count;     /* Packets. */
} TwPackets;

/* A big-endian number in the header: bit 0 is the most significant bit of byte 0. */
typedef struct TwField {
    uint32_t bit_offset;
    uint32_t bit_width; /* 1 to 32; 0 = no such field. */
} TwField;

/* What became of the packets of a launch; the kernel adds to it. */
typedef struct TwCounts {
    uint32_t placed;
    uint32_t duplicate; /* Its slot was taken by another packet of this batch (`_seq`). */
    uint32_t foreign;   /* Of another batch, by its batch number (`_seq`). */
    uint32_t refused;   /* A listed slot beyond the batch: nothing was written. */
} TwCounts;

/* Reorder and convert: `tw_reorder_*` and `tw_copy`.
 *
 * The slot of packet `i` is
 *   - in `_seq` kernels: `sequence mod slots_per_batch` of its own header. With `batch.bit_width` not 0 a
 *     packet whose batch number is not `batch_number` is left out. `owners` decides between packets with
 *     the same slot: exactly one is placed, whole;
 *   - in all others: `slots[i]`, where there is a list;
 *   - or `i` itself ("slot-major"): the list of packets is in slot order, and a slot whose packet did not
 *     come is filled with zeros.
 */
typedef struct TwReorder {
    TwPackets packets;
    uint64_t slots;   /* u32[count], or 0. */
    uint64_t out;     /* The batch; aligned to the output element, faster if to 16 bytes. */
    uint64_t arrived; /* u32[(slots_per_batch + 31) / 32], bit `slot % 32` of word `slot / 32`; or 0. */
    uint64_t owners;  /* u32[slots_per_batch], zeroed by the caller; `_seq` only. */
    uint64_t counts;  /* TwCounts, or 0. */
    uint64_t affine;  /* float[2 * channels]: a, b of each channel; `_affine` kernels only. */
    uint32_t payload_offset; /* Bytes from a packet to its payload. */
    uint32_t payload_bytes;  /* Bytes of a payload; a rest that is no whole element is left out. */
    uint32_t slots_per_batch;
    uint32_t slot_stride; /* Bytes from slot to slot; a multiple of the output element. Packed for `_nhwc`. */
    TwField sequence;
    TwField batch;
    uint32_t batch_number;
    uint32_t network_order; /* Not 0: elements of 16 and 32 bits are big-endian. */
    /* 0: the writes of a warp begin at lines of 128 bytes, best from device memory. Otherwise its reads begin
     * at a multiple of this, a power of two; 128 is best from pinned memory. */
    uint32_t line_bytes;
    uint32_t channels;      /* `_affine` and `_nhwc` kernels only, as `plane`. */
    uint32_t plane;         /* Elements of one channel of one image. */
    uint32_t padding;       /* 0 */
} TwReorder;

/* Zeroes the slots whose bit in `arrived` is not set, and counts them: `tw_zero_missing*`. */
typedef struct TwZero {
    uint64_t out;
    uint64_t arrived; /* As in TwReorder; may have been written by the host. */
    uint64_t missing; /* u32, or 0: the kernel adds the number of slots it zeroed. */
    uint32_t slots_per_batch;
    uint32_t slot_stride;
    uint32_t slot_bytes;    /* Bytes of a slot that are zeroed; the rest of the stride is left alone. */
    uint32_t element_bytes; /* `_nhwc` only, as the next two. */
    uint32_t channels;
    uint32_t plane;
} TwZero;

/* Copies the first bytes of every packet to one dense array: `tw_gather_headers`. */
typedef struct TwGather {
    TwPackets packets;
    uint64_t out; /* u8[count * header_bytes], pinned host memory or any other. */
    uint32_t header_bytes;
    uint32_t padding; /* 0 */
} TwGather;

/* The same sizes stand in `drivers/cuda/src/abi.rs`: whoever changes one of them is stopped by both. */
#ifdef __cplusplus
#define TW_SIZE(type, bytes) static_assert(sizeof(type) == (bytes), #type)
#else
#define TW_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#endif
TW_SIZE(TwPackets, 32);
TW_SIZE(TwField, 8);
TW_SIZE(TwCounts, 16);
TW_SIZE(TwReorder, 136);
TW_SIZE(TwZero, 48);
TW_SIZE(TwGather, 48);

#endif
