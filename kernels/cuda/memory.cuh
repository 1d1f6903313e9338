// Reads and writes of any length at any alignment, and the order of kernels that overlap.
#pragma once

#include <cstdint>

namespace tw {

// Waits until the kernels before this one are done and their writes are seen, and lets the next one start
// its reads: nothing of either in an ordinary launch. What comes before it may only read what the host or
// the NIC wrote. At most two kernels run at once; to let the next start any earlier was slower (BENCH.md).
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Aligned reads of packets, which are read once (or, with AGAIN, soon once more, from L1). Volatile, so
// that none moves behind `wait_for_previous`: they are meant to be under way by then.
template <int BYTES, bool AGAIN = false>
struct Aligned;

template <bool AGAIN>
struct Aligned<1, AGAIN> {
    __device__ static void read(const uint8_t* from, uint32_t* words) {
        asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(words[0]) : "l"(from));
    }
};

template <bool AGAIN>
struct Aligned<2, AGAIN> {
    __device__ static void read(const uint8_t* from, uint32_t* words) {
        uint16_t half;
        asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(half) : "l"(from));
        words[0] = half;
    }
};

template <bool AGAIN>
struct Aligned<4, AGAIN> {
    __device__ static void read(const uint8_t* from, uint32_t* words) {
        asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(words[0]) : "l"(from));
    }
};

template <bool AGAIN>
struct Aligned<8, AGAIN> {
    __device__ static void read(const uint8_t* from, uint32_t* words) {
        if constexpr (AGAIN) {
            asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "l"(from));
        } else {
            asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                         : "=r"(words[0]), "=r"(words[1])
                         : "l"(from));
        }
    }
};

template <bool AGAIN>
struct Aligned<16, AGAIN> {
    __device__ static void read(const uint8_t* from, uint32_t* words) {
        if constexpr (AGAIN) {
            asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                         : "l"(from));
        } else {
            asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                         : "l"(from));
        }
    }
};

__device__ __forceinline__ uint32_t read_byte(const uint8_t* from) {
    return __ldg(from);
}

// Reads `BYTES` at any alignment. Whole aligned words are read where all of them lie in [begin, end),
// single bytes elsewhere: never a byte outside of it.
template <int BYTES>
__device__ __forceinline__ void read_unaligned(const uint8_t* from, const uint8_t* begin,
                                               const uint8_t* end, uint32_t* words) {
    constexpr int WORDS = BYTES < 4 ? 1 : BYTES / 4;
    const uint32_t offset = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from) & 3);
    const uint8_t* first = from - offset;
    if (BYTES >= 4 && first >= begin && first + BYTES + 4 <= end) {
        uint32_t low = __ldg(reinterpret_cast<const uint32_t*>(first));
#pragma unroll
        for (int i = 0; i < WORDS; ++i) {
            const uint32_t high = __ldg(reinterpret_cast<const uint32_t*>(first) + i + 1);
            words[i] = __funnelshift_r(low, high, 8 * offset);
            low = high;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        uint32_t word = 0;
#pragma unroll
        for (int b = 0; b < (BYTES < 4 ? BYTES : 4); ++b) {
            word |= read_byte(from + 4 * i + b) << (8 * b);
        }
        words[i] = word;
    }
}

// A batch is written once and read next by another kernel.
__device__ __forceinline__ void write16(uint8_t* to, const uint32_t* words) {
    __stcs(reinterpret_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
}

}  // namespace tw
