// Where a packet is and which slot it belongs to.
#pragma once

#include <cstdint>

#include "abi.h"

namespace tw {

// The address of packet `i`; 0 = it did not come.
__device__ __forceinline__ const uint8_t* packet_address(const TwPackets& packets, uint32_t i) {
    if (__builtin_expect(packets.addresses != 0, 1)) {
        return reinterpret_cast<const uint8_t*>(
            __ldg(reinterpret_cast<const uint64_t*>(packets.addresses) + i));
    }
    uint32_t number = i;
    if (packets.index != 0) {
        number = __ldg(reinterpret_cast<const uint32_t*>(packets.index) + i);
        if (number == TW_NONE) return nullptr;
    }
    return reinterpret_cast<const uint8_t*>(packets.base) +
           static_cast<size_t>(packets.stride) * number;
}

// A number in the header: at most five bytes hold 32 bits at any offset.
__device__ __forceinline__ uint32_t read_field(const uint8_t* packet, const TwField& field) {
    const uint8_t* first = packet + field.bit_offset / 8;
    const uint32_t bits = field.bit_offset % 8 + field.bit_width;
    uint64_t value = 0;
#pragma unroll
    for (uint32_t i = 0; i < 5; ++i) {
        value = value << 8 | (8 * i < bits ? __ldg(first + i) : 0);
    }
    return static_cast<uint32_t>(value >> (40 - bits)) & (0xffffffffu >> (32 - field.bit_width));
}

// Adds one to a counter, if the launcher wants it.
__device__ __forceinline__ void count(uint64_t counts, uint32_t TwCounts::*which) {
    if (counts != 0) atomicAdd(&(reinterpret_cast<TwCounts*>(counts)->*which), 1u);
}

struct Item {
    const uint8_t* packet;
    uint32_t slot;
    bool foreign;  // its batch number is another
};

// Packet `i` and its slot, by any of the ways of `TwReorder`. SEQUENCE: read from its header.
template <bool SEQUENCE>
__device__ __forceinline__ Item find_item(const TwReorder& p, uint32_t i) {
    Item item{packet_address(p.packets, i), i, false};
    if constexpr (SEQUENCE) {
        item.slot = read_field(item.packet, p.sequence) % p.slots_per_batch;
        item.foreign =
            p.batch.bit_width != 0 && read_field(item.packet, p.batch) != p.batch_number;
    } else {
        if (p.slots != 0) item.slot = __ldg(reinterpret_cast<const uint32_t*>(p.slots) + i);
    }
    return item;
}

// Takes the slot for packet `i`, and says whether it may be written. Every thread of every warp on this
// packet gets the same answer: with SEQUENCE the first of the packets with this slot owns it, and each
// warp asks for itself. `first` is the one thread that counts.
template <bool SEQUENCE>
__device__ __forceinline__ bool take_slot(const TwReorder& p, const Item& item, uint32_t i,
                                          bool first) {
    if (item.foreign || item.slot >= p.slots_per_batch) {
        if (first) count(p.counts, item.foreign ? &TwCounts::foreign : &TwCounts::refused);
        return false;
    }
    if constexpr (SEQUENCE) {
        uint32_t owner = 0;
        if (threadIdx.x == 0) {
            owner = atomicCAS(reinterpret_cast<uint32_t*>(p.owners) + item.slot, 0u, i + 1);
        }
        owner = __shfl_sync(0xffffffffu, owner, 0);
        if (owner != 0 && owner != i + 1) {
            if (first) count(p.counts, &TwCounts::duplicate);
            return false;
        }
    }
    if (first) {
        if (p.arrived != 0) {
            atomicOr(reinterpret_cast<uint32_t*>(p.arrived) + item.slot / 32,
                     1u << (item.slot % 32));
        }
        count(p.counts, &TwCounts::placed);
    }
    return true;
}

}  // namespace tw
