// Elements: what comes in packets, what goes into a batch, and the way from one to the other.
//
// A conversion rounds once, to nearest, ties to even; what is beyond the largest finite value becomes
// infinity (IEEE 754-2019, 4.3.1). int8 and int4 are exact in every type, as in the CPU's kernels.
//
// The road leads over fp32 for all outputs but fp64 and int32: every input of up to 16 bits is exact in
// its 24 bits. An int32 is not, and two roundings are not one: it is rounded to odd first (toward zero,
// the last bit set if anything was cut off), after which any rounding to 22 bits or fewer is right.
#pragma once

#include <cstdint>

namespace tw {

enum class To { Fp16, Bf16, Fp32, Fp64, Int32, Bytes };

// Output types: `Bits` holds one element.
template <To TO>
struct Output;
template <>
struct Output<To::Fp16> { using Bits = uint16_t; };
template <>
struct Output<To::Bf16> { using Bits = uint16_t; };
template <>
struct Output<To::Fp32> { using Bits = uint32_t; };
template <>
struct Output<To::Fp64> { using Bits = uint64_t; };
template <>
struct Output<To::Int32> { using Bits = uint32_t; };
template <>
struct Output<To::Bytes> { using Bits = uint8_t; };

// 2^23 + u for u < 2^16 is exact and has u in its low bits: putting u there and subtracting converts
// without the slow integer-to-float unit.
constexpr uint32_t TWO_23 = 0x4b000000;

__device__ __forceinline__ float from_biased(uint32_t two_23_and_u, uint32_t bias) {
    return __uint_as_float(two_23_and_u) - (8388608.0f + static_cast<float>(bias));
}

// Input types: element `k` of the words that were read, as an integer or as an exact float.
// `prepare` is applied to each word first and mends the byte order.
struct Int4 {  // The first of two is in the high half of the byte.
    static constexpr int BITS = 4;
    __device__ static uint32_t prepare(uint32_t word, uint32_t) { return word; }
    __device__ static uint32_t biased(const uint32_t* w, int k) {
        return ((w[k / 8] >> (8 * (k % 8 / 2) + (k % 2 == 0 ? 4 : 0))) & 0xf) ^ 0x8;
    }
    __device__ static int32_t integer(const uint32_t* w, int k) {
        return static_cast<int32_t>(biased(w, k)) - 8;
    }
    __device__ static float real(const uint32_t* w, int k) {
        return from_biased(TWO_23 | biased(w, k), 8);
    }
};

struct Int8 {
    static constexpr int BITS = 8;
    __device__ static uint32_t prepare(uint32_t word, uint32_t) { return word; }
    __device__ static int32_t integer(const uint32_t* w, int k) {
        return static_cast<int8_t>(w[k / 4] >> (8 * (k % 4)));
    }
    __device__ static float real(const uint32_t* w, int k) {
        return from_biased(__byte_perm(w[k / 4] ^ 0x80808080, TWO_23, 0x7440 | (k % 4)), 128);
    }
};

struct Int16 {
    static constexpr int BITS = 16;
    __device__ static uint32_t prepare(uint32_t word, uint32_t network) {
        return __byte_perm(word, 0, network ? 0x2301 : 0x3210);
    }
    __device__ static int32_t integer(const uint32_t* w, int k) {
        return static_cast<int16_t>(w[k / 2] >> (16 * (k % 2)));
    }
    __device__ static float real(const uint32_t* w, int k) {
        const uint32_t selector = k % 2 == 0 ? 0x7410 : 0x7432;
        return from_biased(__byte_perm(w[k / 2] ^ 0x80008000, TWO_23, selector), 32768);
    }
};

struct Int32 {
    static constexpr int BITS = 32;
    __device__ static uint32_t prepare(uint32_t word, uint32_t network) {
        return __byte_perm(word, 0, network ? 0x0123 : 0x3210);
    }
    __device__ static int32_t integer(const uint32_t* w, int k) {
        return static_cast<int32_t>(w[k]);
    }
    __device__ static float real(const uint32_t* w, int k) { return __int2float_rn(integer(w, k)); }
    __device__ static float to_odd(const uint32_t* w, int k) {
        const float cut = __int2float_rz(integer(w, k));
        const uint32_t lost = __float2int_rz(cut) != integer(w, k) ? 1 : 0;
        return __uint_as_float(__float_as_uint(cut) | lost);
    }
};

struct Bytes {  // As they are.
    static constexpr int BITS = 8;
    __device__ static uint32_t prepare(uint32_t word, uint32_t) { return word; }
};

// Instructions instead of cuda_fp16.h: NVRTC compiles these sources where there is no toolkit.
__device__ __forceinline__ uint32_t pack_fp16(float first, float second) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

__device__ __forceinline__ uint32_t pack_bf16(float first, float second) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

// Four int8 to four fp16: 1024 + u is exact for u < 1024 and has u in its low bits.
__device__ __forceinline__ void int8_to_fp16(uint32_t word, uint32_t* out) {
    const uint32_t biased = word ^ 0x80808080;
    constexpr uint32_t BIAS = 0x64806480;  // 1024 + 128, twice
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const uint32_t bits = __byte_perm(biased, 0x64646464, i == 0 ? 0x4140 : 0x4342);
        asm("sub.f16x2 %0, %1, %2;" : "=r"(out[i]) : "r"(bits), "r"(BIAS));
    }
}

// One element as the float that rounds to the right output.
template <class In, To TO>
__device__ __forceinline__ float carrier(const uint32_t* w, int k) {
    if constexpr (In::BITS == 32 && TO != To::Fp32) {
        return In::to_odd(w, k);
    } else {
        return In::real(w, k);
    }
}

// Rounds `x` to the output type; `pair` holds the one before it where two share a word.
template <To TO>
__device__ __forceinline__ typename Output<TO>::Bits round_to(float x) {
    if constexpr (TO == To::Fp16) {
        uint16_t bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
        return bits;
    } else if constexpr (TO == To::Bf16) {
        uint16_t bits;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
        return bits;
    } else {
        static_assert(TO == To::Fp32);
        return __float_as_uint(x);
    }
}

// Element `k`, converted. 2^52 + u is to fp64 what 2^23 + u is to fp32.
template <class In, To TO>
__device__ __forceinline__ typename Output<TO>::Bits convert_one(const uint32_t* w, int k) {
    if constexpr (TO == To::Bytes) {
        return static_cast<uint8_t>(w[k / 4] >> (8 * (k % 4)));
    } else if constexpr (TO == To::Int32) {
        return static_cast<uint32_t>(In::integer(w, k));
    } else if constexpr (TO == To::Fp64) {
        const uint32_t biased = static_cast<uint32_t>(In::integer(w, k)) ^ 0x80000000;
        const double value = __hiloint2double(0x43300000, static_cast<int>(biased)) -
                             (4503599627370496.0 + 2147483648.0);
        return static_cast<uint64_t>(__double_as_longlong(value));
    } else {
        return round_to<TO>(carrier<In, TO>(w, k));
    }
}

// As many elements as fill 16 bytes of output.
template <class In, To TO>
struct Chunk {
    using Bits = typename Output<TO>::Bits;
    static constexpr int ELEMENTS = 16 / sizeof(Bits);
    static constexpr int BYTES = ELEMENTS * In::BITS / 8;  // of input: 1 to 32
    static constexpr int WORDS = BYTES < 4 ? 1 : BYTES / 4;

    __device__ static void convert(const uint32_t* w, uint32_t* out) {
        if constexpr (TO == To::Bytes) {
#pragma unroll
            for (int i = 0; i < 4; ++i) out[i] = w[i];
        } else if constexpr (In::BITS == 8 && TO == To::Fp16) {
            int8_to_fp16(w[0], out);
            int8_to_fp16(w[1], out + 2);
        } else if constexpr (TO == To::Fp16 || TO == To::Bf16) {
            float x[ELEMENTS];
#pragma unroll
            for (int k = 0; k < ELEMENTS; ++k) x[k] = carrier<In, TO>(w, k);
            pack(x, out);
        } else {
#pragma unroll
            for (int k = 0; k < ELEMENTS; ++k) store_bits(convert_one<In, TO>(w, k), k, out);
        }
    }

    // Rounds floats into 16 bytes; not for fp64 and int32.
    __device__ static void pack(const float* x, uint32_t* out) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if constexpr (TO == To::Fp16) {
                out[i] = pack_fp16(x[2 * i], x[2 * i + 1]);
            } else if constexpr (TO == To::Bf16) {
                out[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
            } else {
                out[i] = __float_as_uint(x[i]);
            }
        }
    }

  private:
    __device__ static void store_bits(Bits value, int k, uint32_t* out) {
        if constexpr (sizeof(Bits) == 8) {
            out[2 * k] = static_cast<uint32_t>(value);
            out[2 * k + 1] = static_cast<uint32_t>(value >> 32);
        } else {
            out[k] = value;
        }
    }
};

}  // namespace tw
