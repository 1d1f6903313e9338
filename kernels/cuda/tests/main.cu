// Tests of the kernels on a GPU against the naive model.
//
//   exact MODULE [--reduced] [TEST...]     TEST = lengths values modes planes; all without one
//
// Exit 0 if all held, 1 if something differed, 3 if CUDA failed.
#include <cstdarg>
#include <cstring>

#include "run.h"

void Run::expect(bool good, const char* format, ...) {
    ++checked;
    if (good) return;
    if (++failed > 10) return;
    va_list args;
    va_start(args, format);
    std::fputs("DIFFERS: ", stdout);
    std::vprintf(format, args);
    std::fputs("\n", stdout);
    va_end(args);
}

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: exact MODULE [--reduced] [lengths|values|modes|planes]...\n");
        return 2;
    }
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    const Module kernels(argv[1]);
    bool reduced = false;
    std::vector<std::string> chosen;
    for (int i = 2; i < argc; ++i) {
        if (std::strcmp(argv[i], "--reduced") == 0) {
            reduced = true;
        } else {
            chosen.push_back(argv[i]);
        }
    }
    std::printf("%s, compute capability %d.%d%s\n", device.name, device.major, device.minor,
                reduced ? ", reduced sizes" : "");
    struct {
        const char* name;
        void (*test)(Run&);
    } tests[] = {{"lengths", test_lengths}, {"values", test_values}, {"modes", test_modes}, {"planes", test_planes}};
    uint64_t failed = 0, ran = 0;
    for (const auto& test : tests) {
        bool wanted = chosen.empty();
        for (const auto& name : chosen) wanted = wanted || name == test.name;
        if (!wanted) continue;
        Run run{kernels, reduced};
        test.test(run);
        CHECK(cudaDeviceSynchronize());
        std::printf("%s: %llu comparisons, %llu differ\n", test.name,
                    static_cast<unsigned long long>(run.checked),
                    static_cast<unsigned long long>(run.failed));
        failed += run.failed + (run.checked == 0);
        ++ran;
    }
    if (ran == 0) {
        std::fprintf(stderr, "no such test\n");
        return 2;
    }
    std::printf(failed == 0 ? "all held\n" : "NOT all held\n");
    return failed == 0 ? 0 : 1;
}
