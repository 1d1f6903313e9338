// Every value of every input type in every output type: 2^4, 2^8, 2^16 and 2^32 of them.
#include <algorithm>

#include "run.h"

namespace {

constexpr size_t PAYLOAD = 8192;

// Elements `first`.. of the type's values in order, as bytes.
void fill(const InputType& in, bool network, uint64_t first, std::vector<uint8_t>& bytes) {
    const size_t chunk = 1 << 20;
    on_all_cores((bytes.size() + chunk - 1) / chunk, [&](size_t part) {
        const size_t end = std::min(bytes.size(), (part + 1) * chunk);
        for (size_t i = part * chunk; i < end; ++i) {
            if (in.bits == 4) {
                bytes[i] = static_cast<uint8_t>(first + i);  // all pairs of two
                continue;
            }
            const size_t width = in.bits / 8, b = i % width;
            const uint64_t value = first + i / width;
            bytes[i] = static_cast<uint8_t>(value >> (8 * (network ? width - 1 - b : b)));
        }
    });
}

uint64_t check_slots(const std::vector<uint8_t>& payloads, const uint8_t* got, const InputType& in, bool network,
                     const OutputType& out) {
    std::atomic<uint64_t> wrong{0};
    on_all_cores(payloads.size() / PAYLOAD, [&](size_t i) {
        const std::vector<uint8_t> want = convert(payloads.data() + i * PAYLOAD, PAYLOAD, in, network, out);
        if (std::memcmp(want.data(), got + i * want.size(), want.size()) != 0) ++wrong;
    });
    return wrong;
}

void check_type(Run& run, const InputType& in, bool network, const OutputType& out, uint64_t bytes_of_values) {
    const size_t part = std::min<uint64_t>(bytes_of_values, run.reduced ? 1 << 16 : 256 << 20);
    const uint64_t parts = run.reduced ? 1 : bytes_of_values / part;
    std::vector<uint8_t> payloads(part);
    Buffer packets(part, Memory::Device);
    Buffer batch(part * 8 / in.bits * out.bytes, Memory::Device);
    Buffer host(batch.bytes(), Memory::Pinned);
    const cudaKernel_t kernel = run.kernels.kernel(std::string("tw_reorder_") + in.name + "_" + out.name);
    for (uint64_t i = 0; i < parts; ++i) {
        fill(in, network, i * part * 8 / in.bits, payloads);
        CHECK(cudaMemcpy(packets.data(), payloads.data(), part, cudaMemcpyDefault));
        CHECK(cudaMemset(batch.data(), 0xff, batch.bytes()));
        TwReorder p = plain_reorder();
        p.packets.base = packets.address();
        p.packets.stride = PAYLOAD;
        p.packets.count = static_cast<uint32_t>(part / PAYLOAD);
        p.out = batch.address();
        p.payload_bytes = PAYLOAD;
        p.slots_per_batch = p.packets.count;
        p.slot_stride = static_cast<uint32_t>(PAYLOAD * 8 / in.bits * out.bytes);
        p.network_order = network;
        launch_reorder(kernel, p, {4, 1}, nullptr);
        CHECK(cudaMemcpy(host.data(), batch.data(), batch.bytes(), cudaMemcpyDefault));
        const uint64_t wrong = check_slots(payloads, host.data(), in, network, out);
        run.expect(wrong == 0, "%s to %s%s: %llu slots of 8192 bytes, from value %llu on", in.name, out.name,
                   network ? " (network)" : "", static_cast<unsigned long long>(wrong),
                   static_cast<unsigned long long>(i * part * 8 / in.bits));
        run.checked += part * 8 / in.bits - 1;
    }
}

}  // namespace

void test_values(Run& run) {
    for (const InputType& in : INPUTS) {
        for (const OutputType& out : OUTPUTS) {
            for (int network = 0; network <= (in.bits > 8 ? 1 : 0); ++network) {
                // All 2^32 in one byte order where rounding matters; elsewhere the lengths cover them.
                const bool rounds = out.precision != 0 && out.precision < in.bits;
                if (in.bits == 32 && (network == 1 || !rounds)) continue;
                const uint64_t bytes = in.bits == 32 ? uint64_t{1} << 34 : in.bits == 16 ? 1 << 17 : PAYLOAD;
                check_type(run, in, network == 1, out, bytes);
            }
        }
    }
    std::printf("values: %s\n", run.reduced ? "the first 65,536 bytes of each type's values"
                                            : "all of int4, int8, int16; all 2^32 of int32 to fp16, bf16, fp32");
}
