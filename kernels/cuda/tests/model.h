// The naive model of the conversions: exact integers, one rounding by the book, no fp16 or bf16 hardware
// and nothing of the kernels. Slow and plain on purpose.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

struct InputType {
    const char* name;
    int bits;
};

struct OutputType {
    const char* name;
    int bytes;
    int precision;  // significant bits of the format; 0 = an integer
    int max_exponent;
};

const InputType INPUTS[] = {{"int4", 4}, {"int8", 8}, {"int16", 16}, {"int32", 32}};
const OutputType OUTPUTS[] = {{"fp16", 2, 11, 15},
                              {"bf16", 2, 8, 127},
                              {"fp32", 4, 24, 127},
                              {"fp64", 8, 53, 1023},
                              {"int32", 4, 0, 0}};

// Element `i` of a payload.
inline int64_t element(const uint8_t* payload, const InputType& in, bool network, size_t i) {
    uint32_t raw = 0;
    if (in.bits == 4) {
        raw = i % 2 == 0 ? payload[i / 2] >> 4 : payload[i / 2] & 15;
    } else {
        const int bytes = in.bits / 8;
        for (int b = 0; b < bytes; ++b) {
            const int significance = network ? bytes - 1 - b : b;
            raw |= static_cast<uint32_t>(payload[i * bytes + b]) << (8 * significance);
        }
    }
    const int64_t range = int64_t{1} << in.bits;
    return raw >= static_cast<uint64_t>(range / 2) ? raw - range : raw;
}

// Puts sign, exponent (of the leading bit) and significand (`precision` bits, or fewer for a subnormal)
// into the bits of the format.
inline uint64_t encode(const OutputType& out, bool negative, int exponent, uint64_t significand) {
    const int fraction_bits = out.precision - 1;
    const uint64_t leading = uint64_t{1} << fraction_bits;
    uint64_t bits;
    if (exponent > out.max_exponent) {
        bits = static_cast<uint64_t>(2 * out.max_exponent + 1) << fraction_bits;  // infinity
    } else if (significand < leading) {
        bits = significand;  // zero or subnormal
    } else {
        bits = static_cast<uint64_t>(exponent + out.max_exponent) << fraction_bits | (significand - leading);
    }
    return bits | static_cast<uint64_t>(negative) << (8 * out.bytes - 1);
}

// An integer to the nearest value of the format, ties to even.
inline uint64_t round_integer(const OutputType& out, int64_t value) {
    if (out.precision == 0) return static_cast<uint32_t>(value);
    const bool negative = value < 0;
    uint64_t magnitude = negative ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    if (magnitude == 0) return 0;
    int exponent = 0;
    while (magnitude >> exponent != 1) ++exponent;
    const int cut = exponent - (out.precision - 1);
    if (cut <= 0) return encode(out, negative, exponent, magnitude << -cut);
    uint64_t kept = magnitude >> cut;
    const uint64_t lost = magnitude - (kept << cut), half = uint64_t{1} << (cut - 1);
    if (lost > half || (lost == half && kept % 2 == 1)) ++kept;
    if (kept >> out.precision != 0) {
        kept >>= 1;
        ++exponent;
    }
    return encode(out, negative, exponent, kept);
}

// A finite float to the nearest value of the format, ties to even.
inline uint64_t round_float(const OutputType& out, float value) {
    const bool negative = std::signbit(value);
    const double magnitude = std::fabs(static_cast<double>(value));
    if (magnitude == 0) return encode(out, negative, 0, 0);
    int exponent = std::ilogb(magnitude);
    const int smallest = 1 - out.max_exponent;
    if (exponent < smallest) exponent = smallest;
    // A power of two apart, so that this is exact; nearbyint rounds ties to even.
    double kept = std::nearbyint(std::ldexp(magnitude, out.precision - 1 - exponent));
    if (kept == std::ldexp(1.0, out.precision)) {
        kept /= 2;
        ++exponent;
    }
    return encode(out, negative, exponent, static_cast<uint64_t>(kept));
}

// y = x·a + b in fp32 with one rounding, then one to the output.
inline uint64_t round_affine(const OutputType& out, int64_t value, float a, float b) {
    return round_float(out, std::fma(static_cast<float>(value), a, b));
}

inline void put(std::vector<uint8_t>& bytes, size_t at, const OutputType& out, uint64_t bits) {
    std::memcpy(bytes.data() + at, &bits, static_cast<size_t>(out.bytes));  // little-endian hosts
}

// A payload as its slot is to be.
inline std::vector<uint8_t> convert(const uint8_t* payload, size_t payload_bytes, const InputType& in,
                                    bool network, const OutputType& out) {
    const size_t elements = payload_bytes * 8 / in.bits;
    std::vector<uint8_t> slot(elements * out.bytes);
    for (size_t i = 0; i < elements; ++i) {
        put(slot, i * out.bytes, out, round_integer(out, element(payload, in, network, i)));
    }
    return slot;
}
