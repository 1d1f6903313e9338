// What the tests share: random numbers, threads, and the count of what was checked.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "device.h"
#include "model.h"

struct Run {
    const Module& kernels;
    bool reduced;  // under a checker, which is slow
    uint64_t checked = 0;
    uint64_t failed = 0;

    // Counts a comparison, and says what was wrong the first few times.
    void expect(bool good, const char* format, ...) __attribute__((format(printf, 3, 4)));
};

// Calls `work(i)` for i < n on all cores.
inline void on_all_cores(size_t n, const std::function<void(size_t)>& work) {
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    for (unsigned t = 0; t < cores; ++t) {
        threads.emplace_back([&] {
            for (size_t i; (i = next++) < n;) work(i);
        });
    }
    for (auto& thread : threads) thread.join();
}

inline std::vector<uint8_t> random_bytes(size_t n, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<uint8_t> bytes(n);
    for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
    return bytes;
}

// A launch description with everything off.
inline TwReorder plain_reorder() {
    TwReorder p;
    std::memset(&p, 0, sizeof p);
    return p;
}

void test_lengths(Run& run);     // lengths.cu
void test_values(Run& run);      // values.cu
void test_modes(Run& run);       // modes.cu
void test_planes(Run& run);      // planes.cu
