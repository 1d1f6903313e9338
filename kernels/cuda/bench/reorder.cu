// How long the kernels take at the documented geometry, beside copies of the same bytes.
//
//   reorder MODULE [--json FILE]
//
// 4096 packets of 1240 bytes, shuffled, become a batch of [32, 3, 224, 224]. A figure is the median over
// replays of the time per batch: in a graph of many batches one after the other ("graph"), the same with
// each kernel allowed to start while the one before it finishes ("overlap"), and launched one by one
// ("single"). Every launch has another set of packets, lists and batch; all sets together are several times
// the L2 cache. Packets are random. What comes out is compared with the model before anything is timed.
#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "../tests/device.h"
#include "../tests/model.h"

namespace {

constexpr uint32_t PACKETS = 4096, OFFSET = 64, PAYLOAD = 1176, STRIDE = OFFSET + PAYLOAD;
constexpr int SETS = 24;
constexpr int LAUNCHES = 2 * SETS;
constexpr size_t PACKET_BYTES = size_t{PACKETS} * STRIDE;
constexpr size_t PAYLOAD_BYTES = size_t{PACKETS} * PAYLOAD;

// One launch's worth of work for set `set` on a stream.
using Work = std::function<void(int set, cudaStream_t stream, bool overlap)>;

struct Timer {
    cudaEvent_t begin, end;
    Timer() {
        CHECK(cudaEventCreate(&begin));
        CHECK(cudaEventCreate(&end));
    }
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

struct Bench {
    cudaStream_t stream, second;
    Timer timer;
    FILE* json = nullptr;

    Bench() {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    }

    double timed(int replays, const std::function<void()>& run) {
        std::vector<double> us;
        const int warm_up = replays / 2 + 3;
        for (int i = 0; i < replays + warm_up; ++i) {
            CHECK(cudaEventRecord(timer.begin, stream));
            run();
            CHECK(cudaEventRecord(timer.end, stream));
            CHECK(cudaEventSynchronize(timer.end));
            float ms;
            CHECK(cudaEventElapsedTime(&ms, timer.begin, timer.end));
            if (i >= warm_up) us.push_back(1000.0 * ms / LAUNCHES);
        }
        return median(us);
    }

    double graph(int replays, const std::function<void()>& enqueue) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        enqueue();
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        const double us = timed(replays, [&] { CHECK(cudaGraphLaunch(exec, stream)); });
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
        return us;
    }

    // `overlap`: whether the work is a kernel that may overlap with the one before.
    void row(const std::string& name, double bytes, bool overlap, const Work& work, int replays = 60) {
        const auto all = [&](bool overlapping) {
            for (int i = 0; i < LAUNCHES; ++i) work(i % SETS, stream, overlapping);
        };
        const double plain = graph(replays, [&] { all(false); });
        const double overlapped = overlap ? graph(replays, [&] { all(true); }) : 0;
        const double single = timed(replays, [&] { all(false); });
        print(name, bytes, plain, overlapped, single);
    }

    void print(const std::string& name, double bytes, double plain, double overlapped, double single) {
        std::printf("%-58s %8.2f ", name.c_str(), plain);
        if (overlapped > 0) {
            std::printf("%8.2f ", overlapped);
        } else {
            std::printf("%8s ", "-");
        }
        std::printf("%8.2f %8.2f\n", single, bytes / plain / 1e6);
        if (json != nullptr) {
            std::fprintf(json, "{\"name\":\"%s\",\"graph_us\":%.3f,\"overlap_us\":%.3f,\"single_us\":%.3f,\"bytes\":%.0f}\n",
                         name.c_str(), plain, overlapped, single, bytes);
        }
    }

    void title(const char* text) {
        std::printf("\n%-58s %8s %8s %8s %8s\n", text, "graph", "overlap", "single", "TB/s");
    }
};

// Packets, lists and batches of all sets.
struct Sets {
    std::vector<uint8_t> host;
    std::vector<uint32_t> order;  // packet i of a set is for slot order[i]
    Buffer device, pinned, staged, out;
    Buffer addresses, pinned_addresses, slots, by_place, by_place_pinned, index, owners, arrived, affine;
    Buffer host_addresses, host_slots;  // the same lists in pinned memory

    static std::vector<uint8_t> make_packets() {
        std::vector<uint8_t> bytes(PACKET_BYTES * SETS);
        std::mt19937_64 random(1);
        for (size_t i = 0; i < bytes.size(); i += 8) {
            const uint64_t value = random();
            std::memcpy(&bytes[i], &value, 8);
        }
        return bytes;
    }
    static std::vector<uint32_t> make_order() {
        std::vector<uint32_t> order;
        std::mt19937_64 random(2);
        for (int set = 0; set < SETS; ++set) {
            std::vector<uint32_t> one(PACKETS);
            std::iota(one.begin(), one.end(), 0);
            std::shuffle(one.begin(), one.end(), random);
            order.insert(order.end(), one.begin(), one.end());
        }
        return order;
    }
    // The sequence into 12 bits at bit 128.
    void number() {
        for (size_t i = 0; i < order.size(); ++i) {
            uint8_t* at = host.data() + i * STRIDE + 16;
            at[0] = static_cast<uint8_t>(order[i] >> 4);
            at[1] = static_cast<uint8_t>((order[i] & 15) << 4 | (at[1] & 15));
        }
    }
    std::vector<uint64_t> addresses_in(uint64_t base) const {
        std::vector<uint64_t> list(order.size());
        for (size_t i = 0; i < list.size(); ++i) list[i] = base + i * STRIDE;
        return list;
    }
    // In slot order: the packet's number, from the first of the set.
    std::vector<uint32_t> inverse() const {
        std::vector<uint32_t> list(order.size());
        for (size_t i = 0; i < list.size(); ++i) {
            list[i / PACKETS * PACKETS + order[i]] = static_cast<uint32_t>(i % PACKETS);
        }
        return list;
    }
    std::vector<uint64_t> places_in(uint64_t base) const {
        const std::vector<uint32_t> numbers = inverse();
        std::vector<uint64_t> list(numbers.size());
        for (size_t i = 0; i < list.size(); ++i) list[i] = base + (i / PACKETS * PACKETS + numbers[i]) * STRIDE;
        return list;
    }
    static std::vector<uint8_t> numbered(Sets* self) {
        self->number();
        return self->host;
    }

    Sets()
        : host(make_packets()), order(make_order()), device(numbered(this)), pinned(host, Memory::Pinned),
          staged(host.size(), Memory::Device), out(size_t{SETS} * PAYLOAD_BYTES * 8, Memory::Device),
          addresses(addresses_in(device.address())), pinned_addresses(addresses_in(pinned.address())),
          slots(order), by_place(places_in(device.address())), by_place_pinned(places_in(pinned.address())),
          index(inverse()), owners(order.size() * 4, Memory::Device), arrived(order.size() / 8, Memory::Device),
          affine(std::vector<float>{0.017f, -2.1f, 0.0175f, -2.0f, 0.0174f, -1.8f}),
          host_addresses(addresses_in(device.address()), Memory::Pinned), host_slots(order, Memory::Pinned) {
        CHECK(cudaMemset(owners.data(), 0, owners.bytes()));
        CHECK(cudaMemset(arrived.data(), 0, arrived.bytes()));
        CHECK(cudaMemset(out.data(), 0xff, out.bytes()));
    }

    TwReorder job(int set, double width) const {
        TwReorder p;
        std::memset(&p, 0, sizeof p);
        p.packets.addresses = addresses.address() + 8 * size_t{PACKETS} * set;
        p.packets.count = PACKETS;
        p.slots = slots.address() + 4 * size_t{PACKETS} * set;
        p.out = out.address() + PAYLOAD_BYTES * 8 * set;
        p.affine = affine.address();
        p.payload_offset = OFFSET;
        p.payload_bytes = PAYLOAD;
        p.slots_per_batch = PACKETS;
        p.slot_stride = static_cast<uint32_t>(PAYLOAD * width);
        p.channels = 3;
        p.plane = 224 * 224;
        return p;
    }
};

// The batch of set 0 against the model; it must be right before it is timed.
void check(const Sets& sets, const char* what, const std::function<void()>& fill) {
    const std::vector<uint8_t> poison(PAYLOAD_BYTES * 2, 0xff);
    CHECK(cudaMemcpy(sets.out.data(), poison.data(), poison.size(), cudaMemcpyDefault));
    fill();
    CHECK(cudaDeviceSynchronize());
    std::vector<uint8_t> got(PAYLOAD_BYTES * 2);
    CHECK(cudaMemcpy(got.data(), sets.out.data(), got.size(), cudaMemcpyDefault));
    for (size_t i = 0; i < PACKETS; ++i) {
        const auto want = convert(sets.host.data() + i * STRIDE + OFFSET, PAYLOAD, INPUTS[1], false, OUTPUTS[0]);
        if (std::memcmp(want.data(), got.data() + want.size() * sets.order[i], want.size()) != 0) {
            std::printf("%s: slot %u differs from the model\n", what, sets.order[i]);
            std::exit(1);
        }
    }
}

struct Variant {
    std::string name;
    std::function<TwReorder(int set)> job;
    Shape shape;
};

void reorder_row(Bench& bench, const Sets& sets, cudaKernel_t kernel, const Variant& v, double bytes,
                 bool checked = true, int replays = 60) {
    if (checked) {
        check(sets, v.name.c_str(), [&] { launch_reorder(kernel, v.job(0), v.shape, bench.stream); });
    }
    bench.row(v.name, bytes, true, [&](int set, cudaStream_t stream, bool overlap) {
        launch_reorder(kernel, v.job(set), v.shape, stream, overlap);
    }, replays);
}

void device_copy(Bench& bench, const Sets& sets, const std::string& name, double bytes) {
    bench.row(name, bytes, false, [&, bytes](int set, cudaStream_t stream, bool) {
        // Half of the traffic is read, half is written.
        CHECK(cudaMemcpyAsync(sets.out.data() + PAYLOAD_BYTES * 8 * set,
                              sets.out.data() + PAYLOAD_BYTES * 8 * ((set + SETS / 2) % SETS),
                              static_cast<size_t>(bytes / 2), cudaMemcpyDeviceToDevice, stream));
    });
}

const double TRAFFIC = PAYLOAD_BYTES * 3.0;  // int8 to fp16

void bench_device(Bench& bench, const Sets& sets, const Module& kernels) {
    const cudaKernel_t kernel = kernels.kernel("tw_reorder_int8_fp16");
    bench.title("packets in device memory, int8 to fp16");
    device_copy(bench, sets, "device copy of the same traffic (14.45 MB)", TRAFFIC);
    for (const double width : {2.0, 8.0}) {
        char name[80];
        std::snprintf(name, sizeof name, "memset of %.1f MB: writing alone", PAYLOAD_BYTES * width / 1e6);
        bench.row(name, PAYLOAD_BYTES * width, false, [&, width](int set, cudaStream_t stream, bool) {
            CHECK(cudaMemsetAsync(sets.out.data() + PAYLOAD_BYTES * 8 * set, 0xff, static_cast<size_t>(PAYLOAD_BYTES * width), stream));
        });
    }
    bench.row("empty launch", 0, true, [&](int, cudaStream_t stream, bool overlap) {
        const TwZero none{};
        launch(kernels.kernel("tw_zero_missing"), {1}, {32}, none, stream, overlap);
    });
    const auto list = [&](int set) { return sets.job(set, 2); };
    for (const Shape shape : {Shape{1, 1}, {2, 1}, {4, 1}, {8, 1}, {2, 2}, {4, 2}}) {
        char name[80];
        std::snprintf(name, sizeof name, "list, %u packets to a block, %u warps to a packet", shape.packets, shape.pieces);
        reorder_row(bench, sets, kernel, {name, list, shape}, TRAFFIC);
    }
    for (const uint32_t line : {8u, 32u, 128u}) {
        reorder_row(bench, sets, kernel, {"list, reads begin at " + std::to_string(line) + " B", [&, line](int set) {
            TwReorder p = sets.job(set, 2);
            p.line_bytes = line;
            return p;
        }, {4, 1}}, TRAFFIC);
    }
    reorder_row(bench, sets, kernel, {"list in pinned memory", [&](int set) {
        TwReorder p = sets.job(set, 2);
        p.packets.addresses = sets.host_addresses.address() + 8 * size_t{PACKETS} * set;
        p.slots = sets.host_slots.address() + 4 * size_t{PACKETS} * set;
        return p;
    }, {4, 1}}, TRAFFIC);
    reorder_row(bench, sets, kernel, {"list and arrival bitmap", [&](int set) {
        TwReorder p = sets.job(set, 2);
        p.arrived = sets.arrived.address() + PACKETS / 8 * set;
        return p;
    }, {4, 1}}, TRAFFIC);
    reorder_row(bench, sets, kernel, {"in slot order, by address", [&](int set) {
        TwReorder p = sets.job(set, 2);
        p.packets.addresses = sets.by_place.address() + 8 * size_t{PACKETS} * set;
        p.slots = 0;
        return p;
    }, {4, 1}}, TRAFFIC);
    reorder_row(bench, sets, kernel, {"in slot order, base + stride x index", [&](int set) {
        TwReorder p = sets.job(set, 2);
        p.packets = {0, sets.device.address() + PACKET_BYTES * set, sets.index.address() + 4 * size_t{PACKETS} * set, STRIDE, PACKETS};
        p.slots = 0;
        return p;
    }, {4, 1}}, TRAFFIC);
    reorder_row(bench, sets, kernel, {"base + stride, slot list, reads begin at 32 B", [&](int set) {
        TwReorder p = sets.job(set, 2);
        p.line_bytes = 32;
        p.packets = {0, sets.device.address() + PACKET_BYTES * set, 0, STRIDE, PACKETS};
        return p;
    }, {4, 1}}, TRAFFIC);
    reorder_row(bench, sets, kernel, {"no list at all (packets in slot order)", [&](int set) {
        TwReorder p = sets.job(set, 2);
        p.packets = {0, sets.device.address() + PACKET_BYTES * set, 0, STRIDE, PACKETS};
        p.slots = 0;
        return p;
    }, {4, 1}}, TRAFFIC, false);
    const auto header = [&](int set) {
        TwReorder p = sets.job(set, 2);
        p.packets = {0, sets.device.address() + PACKET_BYTES * set, 0, STRIDE, PACKETS};
        p.sequence = {128, 12};
        p.owners = sets.owners.address() + 4 * size_t{PACKETS} * set;
        p.arrived = sets.arrived.address() + PACKETS / 8 * set;
        return p;
    };
    // Owners stay from launch to launch: the same packet takes the same slot again.
    reorder_row(bench, sets, kernels.kernel("tw_reorder_int8_fp16_seq"), {"slot from the header, owners and bitmap", header, {4, 1}}, TRAFFIC);
}

void bench_types(Bench& bench, const Sets& sets, const Module& kernels) {
    bench.title("other types, list, 4 packets to a block");
    const struct { const char* name; double width; } types[] = {
        {"tw_reorder_int8_bf16", 2}, {"tw_reorder_int8_fp32", 4}, {"tw_reorder_int8_int32", 4}, {"tw_reorder_int8_fp64", 8},
        {"tw_reorder_int4_fp16", 4}, {"tw_reorder_int4_fp32", 8}, {"tw_reorder_int16_fp16", 1}, {"tw_reorder_int16_fp32", 2},
        {"tw_reorder_int32_fp16", 0.5}, {"tw_reorder_int32_bf16", 0.5}, {"tw_reorder_int32_fp32", 1}, {"tw_copy", 1},
        {"tw_reorder_int8_fp16_affine", 2}, {"tw_reorder_int8_fp16_nhwc", 2}, {"tw_reorder_int8_fp16_affine_nhwc", 2}};
    double last = 0;
    for (const auto& type : types) {
        const double bytes = PAYLOAD_BYTES * (1 + type.width);
        if (bytes != last) {
            char name[80];
            std::snprintf(name, sizeof name, "device copy of %.1f MB of traffic", bytes / 1e6);
            device_copy(bench, sets, name, bytes);
        }
        last = bytes;
        reorder_row(bench, sets, kernels.kernel(type.name),
                    {type.name, [&](int set) { return sets.job(set, type.width); }, {4, 1}}, bytes, false);
    }
    reorder_row(bench, sets, kernels.kernel("tw_reorder_int16_fp16"), {"tw_reorder_int16_fp16, network order", [&](int set) {
        TwReorder p = sets.job(set, 1);
        p.network_order = 1;
        return p;
    }, {4, 1}}, PAYLOAD_BYTES * 2.0, false);
    // The payload one byte off: every read is two words shifted into place.
    reorder_row(bench, sets, kernels.kernel("tw_reorder_int8_fp16"), {"int8 to fp16, payload at an odd address", [&](int set) {
        TwReorder p = sets.job(set, 2);
        p.payload_offset = OFFSET - 1;
        return p;
    }, {4, 1}}, TRAFFIC, false);
}

void bench_rest(Bench& bench, const Sets& sets, const Module& kernels) {
    bench.title("beside the reorder");
    std::vector<uint32_t> all(PACKETS / 32, 0xffffffffu), some(all);
    for (uint32_t slot = 0; slot < PACKETS; slot += 20) some[slot / 32] &= ~(1u << slot % 32);
    const Buffer all_map(all), some_map(some);
    Buffer headers(size_t{SETS} * PACKETS * 64, Memory::Pinned);
    for (const auto& [name, map] : {std::pair<const char*, const Buffer*>{"zero missing slots: none", &all_map},
                                    {"zero missing slots: 205 of 4096", &some_map}}) {
        bench.row(name, 0, true, [&, map = map](int set, cudaStream_t stream, bool overlap) {
            const TwZero z{sets.job(set, 2).out, map->address(), 0, PACKETS, 2 * PAYLOAD, 2 * PAYLOAD, 2, 3, 224 * 224};
            launch_zero(kernels.kernel("tw_zero_missing"), z, stream, overlap);
        });
    }
    for (const uint32_t burst : {64u, 256u, 4096u}) {
        bench.row("gather 64 B headers of " + std::to_string(burst) + " packets to pinned memory", burst * 64.0, false,
                  [&, burst](int set, cudaStream_t stream, bool) {
            const TwGather g{{sets.addresses.address() + 8 * size_t{PACKETS} * set, 0, 0, 0, burst},
                             headers.address() + 64 * size_t{PACKETS} * set, 64, 0};
            launch_gather(kernels.kernel("tw_gather_headers"), g, stream);
        });
    }
}

void bench_pinned(Bench& bench, const Sets& sets, const Module& kernels) {
    const cudaKernel_t kernel = kernels.kernel("tw_reorder_int8_fp16");
    constexpr int REPLAYS = 9;
    bench.title("packets in pinned memory, int8 to fp16");
    const auto copy = [&](int set, cudaStream_t stream) {
        CHECK(cudaMemcpyAsync(sets.staged.data() + PACKET_BYTES * set, sets.pinned.data() + PACKET_BYTES * set,
                              PACKET_BYTES, cudaMemcpyHostToDevice, stream));
    };
    bench.row("host to device copy of the packets (5.08 MB)", PACKET_BYTES, false,
              [&](int set, cudaStream_t stream, bool) { copy(set, stream); }, REPLAYS);
    for (const uint32_t line : {32u, 64u, 128u}) {
        for (const Shape shape : {Shape{1, 1}, {4, 1}, {8, 1}, {4, 2}}) {
            char name[80];
            std::snprintf(name, sizeof name, "direct, %u x %u, reads begin at %u B", shape.packets, shape.pieces, line);
            const auto job = [&, line](int set) {
                TwReorder p = sets.job(set, 2);
                p.packets.addresses = sets.pinned_addresses.address() + 8 * size_t{PACKETS} * set;
                p.line_bytes = line;
                return p;
            };
            reorder_row(bench, sets, kernel, {name, job, shape}, PAYLOAD_BYTES, true, REPLAYS);
        }
    }
    const auto staged = [&](int set) {
        TwReorder p = sets.job(set, 2);
        p.packets = {0, sets.staged.address() + PACKET_BYTES * set, 0, STRIDE, PACKETS};
        return p;
    };
    check(sets, "bulk copy", [&] {
        copy(0, bench.stream);
        launch_reorder(kernel, staged(0), {4, 1}, bench.stream);
    });
    bench.row("bulk copy, then reorder, one after the other", PACKET_BYTES, false, [&](int set, cudaStream_t stream, bool) {
        copy(set, stream);
        launch_reorder(kernel, staged(set), {4, 1}, stream);
    }, REPLAYS);
    // Copies on one stream, reorders on the other, each after its copy.
    std::vector<cudaEvent_t> copied(LAUNCHES + 1);
    for (auto& event : copied) CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    const auto overlapped = [&] {
        CHECK(cudaEventRecord(copied[LAUNCHES], bench.stream));
        CHECK(cudaStreamWaitEvent(bench.second, copied[LAUNCHES]));
        for (int i = 0; i < LAUNCHES; ++i) {
            copy(i % SETS, bench.second);
            CHECK(cudaEventRecord(copied[i], bench.second));
            CHECK(cudaStreamWaitEvent(bench.stream, copied[i]));
            launch_reorder(kernel, staged(i % SETS), {4, 1}, bench.stream);
        }
    };
    const double in_graph = bench.graph(REPLAYS, overlapped);
    bench.print("bulk copy overlapped with the reorder before it", PACKET_BYTES, in_graph, 0, bench.timed(REPLAYS, overlapped));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: reorder MODULE [--json FILE] [device] [types] [rest] [pinned]\n");
        return 2;
    }
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    std::printf("%s, L2 %d MB; us per batch of %u packets\n", device.name, device.l2CacheSize >> 20, PACKETS);
    const Module kernels(argv[1]);
    const Sets sets;
    Bench bench;
    std::vector<std::string> chosen;
    for (int i = 2; i < argc; ++i) {
        if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            bench.json = std::fopen(argv[++i], "w");
        } else {
            chosen.push_back(argv[i]);
        }
    }
    const auto wanted = [&](const char* name) {
        return chosen.empty() || std::find(chosen.begin(), chosen.end(), name) != chosen.end();
    };
    if (wanted("device")) bench_device(bench, sets, kernels);
    if (wanted("types")) bench_types(bench, sets, kernels);
    if (wanted("rest")) bench_rest(bench, sets, kernels);
    if (wanted("pinned")) bench_pinned(bench, sets, kernels);
    if (bench.json != nullptr) std::fclose(bench.json);
    return 0;
}
