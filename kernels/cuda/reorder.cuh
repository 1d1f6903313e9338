// Reorder and convert: the payload of each packet into its slot of the batch, in one pass.
//
// Launch: `blockDim.x` threads (a multiple of 32) work on one packet, `blockDim.y` packets share a
// block, at most 256 threads in all; `gridDim.x` = packets / `blockDim.y`, rounded up.
//
// The way of a byte: reads as wide as 16 bytes of output need (8 for int8 to fp16), neighbouring threads
// at neighbouring addresses, all reads of a thread under way before the first is used, and 16 byte
// writes. The writes decide the cut: what comes before the first multiple of 16 of the slot, and the
// rest at its end, is done element by element. Then a payload that lies at a multiple of its read width
// is read directly, any other by words that are shifted into place.
#pragma once

#include <cstdint>

#include "abi.h"
#include "convert.cuh"
#include "memory.cuh"
#include "packets.cuh"
#include "planes.cuh"
#include "zero.cuh"

namespace tw {

// One payload on its way into one slot.
template <class In, To TO, bool AFFINE, bool NHWC>
struct Payload {
    using C = Chunk<In, TO>;
    using Bits = typename C::Bits;

    const TwReorder& p;
    const uint8_t* from;
    Bits* to;                // the slot; the batch itself for NHWC
    uint32_t first_element;  // number in the batch of the slot's first element
    uint32_t elements;
    uint32_t head;  // elements before the first chunk
    int chunks;

    __device__ Payload(const TwReorder& p, const Item& item) : p(p) {
        from = item.packet + p.payload_offset;
        elements = p.payload_bytes * 8 / In::BITS;
        first_element = item.slot * elements;
        uint8_t* out = reinterpret_cast<uint8_t*>(p.out);
        if constexpr (NHWC) {
            head = 0;
        } else {
            out += static_cast<size_t>(p.slot_stride) * item.slot;
            const uint32_t to_line =
                static_cast<uint32_t>(-reinterpret_cast<uintptr_t>(out) & 15) / sizeof(Bits);
            head = to_line < elements ? to_line : elements;
        }
        to = reinterpret_cast<Bits*>(out);
        chunks = static_cast<int>((elements - head) / C::ELEMENTS);
        if (In::BITS == 4 && head % 2 != 0) {  // a chunk would begin in the middle of a byte
            head = elements;
            chunks = 0;
        }
    }

    __device__ const uint8_t* first_chunk() const { return from + head * In::BITS / 8; }

    __device__ bool aligned() const {
        constexpr uint32_t width = C::BYTES < 16 ? C::BYTES : 16;
        return reinterpret_cast<uintptr_t>(first_chunk()) % width == 0;
    }

    template <bool ALIGNED>
    __device__ void read_chunk(int chunk, uint32_t* words) const {
        const uint8_t* at = first_chunk() + chunk * C::BYTES;
        if constexpr (ALIGNED) {
            Aligned<C::BYTES>::read(at, words);
        } else {
            read_unaligned<C::BYTES>(at, from, from + p.payload_bytes, words);
        }
    }

    __device__ float affine(float x, uint32_t channel) const {
        const float* ab = reinterpret_cast<const float*>(p.affine) + 2 * channel;
        return fmaf(x, __ldg(ab), __ldg(ab + 1));
    }

    __device__ void write_chunk(int chunk, uint32_t* words) const {
        const uint32_t element = head + static_cast<uint32_t>(chunk) * C::ELEMENTS;
        uint32_t out[4];
#pragma unroll
        for (int i = 0; i < C::WORDS; ++i) words[i] = In::prepare(words[i], p.network_order);
        if constexpr (AFFINE) {
            float x[C::ELEMENTS];
            Pixel at(first_element + element, p.plane, p.channels);
#pragma unroll
            for (int k = 0; k < C::ELEMENTS; ++k, at.next()) {
                x[k] = affine(In::real(words, k), at.channel);
            }
            C::pack(x, out);
        } else {
            C::convert(words, out);
        }
        if constexpr (NHWC) {
            Pixel at(first_element + element, p.plane, p.channels);
#pragma unroll
            for (int k = 0; k < C::ELEMENTS; ++k, at.next()) to[at.nhwc()] = C::bits(out, k);
        } else {
            write16(reinterpret_cast<uint8_t*>(to + element), out);
        }
    }

    // One element, read byte by byte.
    __device__ void single(uint32_t element) const {
        constexpr int bytes = In::BITS < 8 ? 1 : In::BITS / 8;
        const uint8_t* at = from + static_cast<size_t>(element) * In::BITS / 8;
        uint32_t word = 0;
#pragma unroll
        for (int b = 0; b < bytes; ++b) word |= read_byte(at + b) << (8 * b);
        word = In::prepare(word, p.network_order);
        const int k = In::BITS == 4 ? static_cast<int>(element % 2) : 0;
        if constexpr (AFFINE || NHWC) {
            const Pixel at_pixel(first_element + element, p.plane, p.channels);
            Bits bits;
            if constexpr (AFFINE) {
                bits = round_to<TO>(affine(In::real(&word, k), at_pixel.channel));
            } else {
                bits = convert_one<In, TO>(&word, k);
            }
            to[NHWC ? at_pixel.nhwc() : element] = bits;
        } else {
            to[element] = convert_one<In, TO>(&word, k);
        }
    }

    __device__ void singles() const {
        const uint32_t body = static_cast<uint32_t>(chunks) * C::ELEMENTS;
        for (uint32_t i = threadIdx.x; i < elements - body; i += blockDim.x) {
            single(i < head ? i : body + i);
        }
    }

    // Where this thread begins, such that the reads of all begin at a multiple of `line_bytes`.
    __device__ int first_of_thread() const {
        const uint32_t ahead =
            static_cast<uint32_t>(reinterpret_cast<uintptr_t>(first_chunk())) & (p.line_bytes - 1);
        return static_cast<int>(threadIdx.x) - static_cast<int>(ahead / C::BYTES);
    }
};

// The chunks of one payload. `take` is asked between the first reads and the first write.
template <int UNROLL, bool ALIGNED, class P, class Take>
__device__ __forceinline__ void move_chunks(const P& payload, int first, Take take) {
    uint32_t words[UNROLL][P::C::WORDS];
    const int lanes = static_cast<int>(blockDim.x);
    bool taken = false;
    do {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int chunk = first + u * lanes;
            if (chunk >= 0 && chunk < payload.chunks) {
                payload.template read_chunk<ALIGNED>(chunk, words[u]);
            }
        }
        if (!taken && !take()) return;
        taken = true;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int chunk = first + u * lanes;
            if (chunk >= 0 && chunk < payload.chunks) payload.write_chunk(chunk, words[u]);
        }
        first += UNROLL * lanes;
    } while (first < payload.chunks);
    payload.singles();
}

// A slot without a packet.
template <class P, bool NHWC>
__device__ __forceinline__ void zero_payload(const P& payload) {
    using Bits = typename P::Bits;
    if constexpr (NHWC) {
        zero_nhwc(payload.to, payload.first_element, payload.elements, payload.p.plane,
                  payload.p.channels, threadIdx.x, blockDim.x);
    } else {
        zero_bytes(reinterpret_cast<uint8_t*>(payload.to), payload.elements * sizeof(Bits),
                   threadIdx.x, blockDim.x);
    }
}

template <class In, To TO, bool AFFINE, bool NHWC>
__device__ __forceinline__ void reorder(const TwReorder& p) {
    using P = Payload<In, TO, AFFINE, NHWC>;
    // Reads under way per thread: 5 cover the documented payload (147 chunks) with one warp.
    constexpr int UNROLL = P::C::BYTES <= 8 ? 5 : P::C::BYTES <= 16 ? 4 : 2;
    let_next_start();
    const uint32_t i = blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= p.packets.count) return;
    const Item item = find_item(p, i);
    const P payload(p, item);
    if (item.packet == nullptr) {
        wait_for_previous();
        zero_payload<P, NHWC>(payload);
        return;
    }
    const auto take = [&] {
        wait_for_previous();
        return take_slot(p, item, i, threadIdx.x == 0);
    };
    if (payload.aligned()) {
        move_chunks<UNROLL, true>(payload, payload.first_of_thread(), take);
    } else {
        move_chunks<2, false>(payload, static_cast<int>(threadIdx.x), take);
    }
}

}  // namespace tw
