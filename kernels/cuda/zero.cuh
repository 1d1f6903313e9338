// Zeros for slots whose packet did not come: never bytes of an earlier batch.
#pragma once

#include <cstdint>

#include "abi.h"
#include "memory.cuh"
#include "planes.cuh"

namespace tw {

// `bytes` zeros, by the threads `lane` of `lanes`.
__device__ __forceinline__ void zero_bytes(uint8_t* to, uint32_t bytes, uint32_t lane,
                                           uint32_t lanes) {
    const uint32_t to_line = static_cast<uint32_t>(-reinterpret_cast<uintptr_t>(to) & 15);
    const uint32_t head = to_line < bytes ? to_line : bytes;
    const uint32_t body = (bytes - head) / 16;
    const uint32_t zeros[4] = {0, 0, 0, 0};
    for (uint32_t i = lane; i < body; i += lanes) write16(to + head + 16 * i, zeros);
    for (uint32_t i = lane; i < bytes - 16 * body; i += lanes) {
        to[i < head ? i : 16 * body + i] = 0;
    }
}

// `elements` zeros of a slot of an NHWC batch; `first` is the number of the slot's first element.
template <class Bits>
__device__ __forceinline__ void zero_nhwc(Bits* batch, uint32_t first, uint32_t elements,
                                          uint32_t plane, uint32_t channels, uint32_t lane,
                                          uint32_t lanes) {
    for (uint32_t i = lane; i < elements; i += lanes) {
        batch[Pixel(first + i, plane, channels).nhwc()] = 0;
    }
}

// One slot per `threadIdx.y`, as in the reorder.
template <bool NHWC>
__device__ __forceinline__ void zero_missing(const TwZero& p) {
    const uint32_t slot = blockIdx.x * blockDim.y + threadIdx.y;
    wait_for_previous();
    if (slot >= p.slots_per_batch) return;
    // Not through the read-only cache: the reorder before may have written it while this kernel started.
    const uint32_t word = *(reinterpret_cast<const volatile uint32_t*>(p.arrived) + slot / 32);
    if ((word >> (slot % 32) & 1) != 0) return;
    if (p.missing != 0 && threadIdx.x == 0) {
        atomicAdd(reinterpret_cast<uint32_t*>(p.missing), 1u);
    }
    if constexpr (!NHWC) {
        uint8_t* to = reinterpret_cast<uint8_t*>(p.out) + static_cast<size_t>(p.slot_stride) * slot;
        zero_bytes(to, p.slot_bytes, threadIdx.x, blockDim.x);
    } else {
        const uint32_t elements = p.slot_bytes / p.element_bytes;
        if (p.element_bytes == 2) {
            zero_nhwc(reinterpret_cast<uint16_t*>(p.out), slot * elements, elements, p.plane,
                      p.channels, threadIdx.x, blockDim.x);
        } else {
            zero_nhwc(reinterpret_cast<uint32_t*>(p.out), slot * elements, elements, p.plane,
                      p.channels, threadIdx.x, blockDim.x);
        }
    }
}

}  // namespace tw
