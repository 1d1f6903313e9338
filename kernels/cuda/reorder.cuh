// Reorder and convert: the payload of each packet into its slot of the batch, in one pass.
//
// Launch: one warp per packet: `blockDim.x` = 32, `blockDim.y` packets share a block (at most 8),
// `gridDim.x` = packets / `blockDim.y`, rounded up. Long payloads may be cut among `gridDim.y` warps: any
// number is right, and more than one pays where packets are few and longer than one piece.
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
            head = elements;
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

    // Whether every chunk lies at a multiple of `width` bytes.
    __device__ bool aligned(uint32_t width) const {
        return reinterpret_cast<uintptr_t>(first_chunk()) % width == 0;
    }

    // `WIDTH` bytes at a time; 0 = at any alignment.
    template <int WIDTH>
    __device__ void read_chunk(const uint8_t* at, uint32_t* words) const {
        if constexpr (WIDTH != 0) {
#pragma unroll
            for (int i = 0; i < C::BYTES / WIDTH; ++i) {
                // Two reads that share a sector find it in L1 the second time.
                Aligned<WIDTH, (C::BYTES > WIDTH)>::read(at + i * WIDTH, words + i * WIDTH / 4);
            }
        } else {
            read_unaligned<C::BYTES>(at, from, from + p.payload_bytes, words);
        }
    }

    __device__ float2 affine_of(uint32_t channel) const {
        const float* ab = reinterpret_cast<const float*>(p.affine) + 2 * channel;
        return make_float2(__ldg(ab), __ldg(ab + 1));
    }

    // `element` is the chunk's first one, and `at` its place in an NCHW slot.
    __device__ void write_chunk(uint32_t element, uint8_t* at, uint32_t* words) const {
        uint32_t out[4];
#pragma unroll
        for (int i = 0; i < C::WORDS; ++i) words[i] = In::prepare(words[i], p.network_order);
        if constexpr (AFFINE) {
            float x[C::ELEMENTS];
            Pixel pixel(first_element + element, p.plane, p.channels);
            const float2 ab = affine_of(pixel.channel);
#pragma unroll
            for (int k = 0; k < C::ELEMENTS; ++k) x[k] = fmaf(In::real(words, k), ab.x, ab.y);
            if (pixel.pixel + C::ELEMENTS > p.plane) {  // the channel ends inside the chunk
#pragma unroll
                for (int k = 0; k < C::ELEMENTS; ++k, pixel.next()) {
                    const float2 other = affine_of(pixel.channel);
                    x[k] = fmaf(In::real(words, k), other.x, other.y);
                }
            }
            C::pack(x, out);
        } else {
            C::convert(words, out);
        }
        write16(at, out);
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
            const Pixel pixel(first_element + element, p.plane, p.channels);
            Bits bits;
            if constexpr (AFFINE) {
                const float2 ab = affine_of(pixel.channel);
                bits = round_to<TO>(fmaf(In::real(&word, k), ab.x, ab.y));
            } else {
                bits = convert_one<In, TO>(&word, k);
            }
            to[NHWC ? pixel.nhwc() : element] = bits;
        } else {
            to[element] = convert_one<In, TO>(&word, k);
        }
    }

    __device__ void singles() const {
        const uint32_t body = static_cast<uint32_t>(chunks) * C::ELEMENTS;
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < elements - body; i += 32) {
            single(i < head ? i : body + i);
        }
    }

    // Chunks that a warp is set back at the start, such that its writes begin at a line of 128 bytes, or
    // its reads at a multiple of `line_bytes`.
    __device__ int set_back() const {
        const uint32_t ahead =
            p.line_bytes == 0
                ? static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to + head) & 127) / 16
                : (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(first_chunk())) & (p.line_bytes - 1)) / C::BYTES;
        return static_cast<int>(ahead);
    }
};

// A piece of a payload: up to `UNROLL` chunks for each thread of a warp, all read before one is used.
template <int UNROLL, int WIDTH, class P>
struct Piece {
    using C = typename P::C;
    static constexpr int CHUNKS = 32 * UNROLL;

    uint32_t words[UNROLL][C::WORDS];

    __device__ static bool is_chunk(const P& payload, int chunk) {
        return static_cast<uint32_t>(chunk) < static_cast<uint32_t>(payload.chunks);
    }

    __device__ void read(const P& payload, int first) {
        const uint8_t* from = payload.first_chunk() + first * C::BYTES;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (is_chunk(payload, first + 32 * u)) {
                payload.template read_chunk<WIDTH>(from + 32 * u * C::BYTES, words[u]);
            }
        }
    }

    __device__ void write(const P& payload, int first) {
        const uint32_t element = payload.head + static_cast<uint32_t>(first * C::ELEMENTS);
        uint8_t* to = reinterpret_cast<uint8_t*>(payload.to + payload.head) + first * 16;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (is_chunk(payload, first + 32 * u)) {
                payload.write_chunk(element + 32 * u * C::ELEMENTS, to + 32 * u * 16, words[u]);
            }
        }
    }
};

// All chunks of one payload. `take` is asked between the first reads and the first write.
template <int UNROLL, int WIDTH, class P, class Take>
__device__ __forceinline__ void move_chunks(const P& payload, Take take) {
    using Chunks = Piece<UNROLL, WIDTH, P>;
    const int back = WIDTH != 0 ? payload.set_back() : 0;
    const int end = payload.chunks + back;
    const int lane = static_cast<int>(threadIdx.x) - back;
    int piece = Chunks::CHUNKS * static_cast<int>(blockIdx.y);
    {
        Chunks chunks;
        chunks.read(payload, piece + lane);
        if (!take()) return;
        chunks.write(payload, piece + lane);
    }
    for (piece += Chunks::CHUNKS * static_cast<int>(gridDim.y); piece < end;
         piece += Chunks::CHUNKS * static_cast<int>(gridDim.y)) {
        Chunks chunks;
        chunks.read(payload, piece + lane);
        chunks.write(payload, piece + lane);
    }
    if (blockIdx.y == 0) payload.singles();
}

// A slot without a packet.
template <class P, bool NHWC>
__device__ __forceinline__ void zero_payload(const P& payload) {
    using Bits = typename P::Bits;
    if constexpr (NHWC) {
        zero_nhwc(payload.to, payload.first_element, payload.elements, payload.p.plane,
                  payload.p.channels, threadIdx.x, 32);
    } else {
        zero_bytes(reinterpret_cast<uint8_t*>(payload.to), payload.elements * sizeof(Bits),
                   threadIdx.x, 32);
    }
}

template <class In, To TO, bool AFFINE, bool NHWC, bool SEQUENCE>
__device__ __forceinline__ void reorder(const TwReorder& p) {
    using P = Payload<In, TO, AFFINE, NHWC>;
    // Reads under way per thread: 5 cover the documented payload (147 chunks) with one warp.
    constexpr int UNROLL = P::C::BYTES <= 8 ? 5 : P::C::BYTES <= 16 ? (AFFINE ? 3 : 4) : 2;
    const uint32_t i = blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= p.packets.count) return;
    const Item item = find_item<SEQUENCE>(p, i);
    const P payload(p, item);
    if (__builtin_expect(item.packet == nullptr, 0)) {
        wait_for_previous();
        if (blockIdx.y == 0) zero_payload<P, NHWC>(payload);
        return;
    }
    const auto take = [&] {
        wait_for_previous();
        return take_slot<SEQUENCE>(p, item, i, threadIdx.x == 0 && blockIdx.y == 0);
    };
    constexpr int WIDEST = P::C::BYTES < 16 ? P::C::BYTES : 16;
    if constexpr (NHWC) {
        if (take() && blockIdx.y == 0) payload.singles();
    } else if (__builtin_expect(payload.aligned(WIDEST), 1)) {
        move_chunks<UNROLL, WIDEST>(payload, take);
    } else if (WIDEST == 16 && payload.aligned(8)) {
        move_chunks<UNROLL, WIDEST == 16 ? 8 : WIDEST>(payload, take);
    } else {
        move_chunks<2, 0>(payload, take);
    }
}

}  // namespace tw
