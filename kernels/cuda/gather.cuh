// The first bytes of packets that live only in device memory, brought to where the CPU can read them.
#pragma once

#include <cstdint>

#include "abi.h"
#include "memory.cuh"
#include "packets.cuh"

namespace tw {

// One thread per `WIDTH` bytes of output, so that a warp writes 32 × WIDTH bytes in a row: writes to
// pinned memory cross the bus in as few pieces as can be.
template <int WIDTH>
__device__ __forceinline__ void gather_pieces(const TwGather& p, uint32_t piece) {
    const uint32_t pieces = p.header_bytes / WIDTH;
    const uint32_t i = piece / pieces;
    if (i >= p.packets.count) return;
    const uint8_t* packet = packet_address(p.packets, i);
    const uint8_t* from = packet + (piece - i * pieces) * WIDTH;
    uint8_t* to = reinterpret_cast<uint8_t*>(p.out) + static_cast<size_t>(piece) * WIDTH;
    uint32_t words[WIDTH < 4 ? 1 : WIDTH / 4];
    if (reinterpret_cast<uintptr_t>(from) % WIDTH == 0) {
        Aligned<WIDTH>::read(from, words);
    } else {
        read_unaligned<WIDTH>(from, packet, packet + p.header_bytes, words);
    }
    wait_for_previous();
    if constexpr (WIDTH == 16) {
        *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else if constexpr (WIDTH == 4) {
        *reinterpret_cast<uint32_t*>(to) = words[0];
    } else {
        *to = static_cast<uint8_t>(words[0]);
    }
}

// Launch: one-dimensional blocks; at least one thread per 16 bytes of output where `header_bytes` and
// `out` are multiples of 16, per 4 where they are multiples of 4, per byte otherwise.
__device__ __forceinline__ void gather_headers(const TwGather& p) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    const uint64_t both = p.out | p.header_bytes;
    if (both % 16 == 0) {
        gather_pieces<16>(p, thread);
    } else if (both % 4 == 0) {
        gather_pieces<4>(p, thread);
    } else {
        gather_pieces<1>(p, thread);
    }
}

}  // namespace tw
