// How packets are found and where they belong: addresses, strides, indices; slots by list, by place and by
// header; what did not come, came twice, or is of another batch; headers brought to the host.
#include <algorithm>
#include <numeric>

#include "run.h"

namespace {

constexpr size_t OFFSET = 64;

struct Field {
    uint32_t bit_offset, bit_width;
};

void write_bits(uint8_t* packet, Field field, uint32_t value) {
    for (uint32_t i = 0; i < field.bit_width; ++i) {
        const uint32_t bit = field.bit_offset + i;
        const uint8_t mask = static_cast<uint8_t>(0x80 >> (bit % 8));
        if (value >> (field.bit_width - 1 - i) & 1) {
            packet[bit / 8] |= mask;
        } else {
            packet[bit / 8] &= static_cast<uint8_t>(~mask);
        }
    }
}

uint32_t read_bits(const uint8_t* packet, Field field) {
    uint32_t value = 0;
    for (uint32_t i = 0; i < field.bit_width; ++i) {
        const uint32_t bit = field.bit_offset + i;
        value = value << 1 | (packet[bit / 8] >> (7 - bit % 8) & 1);
    }
    return value;
}

// A batch as it came: packets in order of arrival, some missing, some twice, some of another batch.
struct Stream {
    uint32_t slots, payload;
    size_t stride;
    Field sequence, batch;
    uint32_t batch_number;
    std::vector<uint8_t> bytes;
    std::vector<uint32_t> slot;     // of each packet
    std::vector<bool> foreign;      // of each packet
    std::vector<std::vector<size_t>> candidates;  // packets of each slot

    const uint8_t* packet(size_t i) const { return bytes.data() + i * stride; }
    uint32_t count() const { return static_cast<uint32_t>(slot.size()); }
    size_t missing() const {
        return std::count_if(candidates.begin(), candidates.end(), [](const auto& c) { return c.empty(); });
    }
};

struct StreamSpec {
    uint32_t slots, payload;
    size_t padding;  // between packets: sets their alignment
    Field sequence, batch;
    int missing, duplicates, foreign;
};

Stream make_stream(const StreamSpec& spec, uint64_t seed) {
    std::mt19937_64 random(seed);
    Stream s{spec.slots, spec.payload, OFFSET + spec.payload + spec.padding, spec.sequence, spec.batch, 0, {}, {}, {}, {}};
    s.batch_number = spec.batch.bit_width == 0 ? 0 : static_cast<uint32_t>(random()) >> (32 - spec.batch.bit_width);
    std::vector<std::pair<uint32_t, bool>> order;
    std::vector<uint32_t> all(spec.slots);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random);
    for (uint32_t i = spec.missing; i < spec.slots; ++i) order.push_back({all[i], false});
    for (int i = 0; i < spec.duplicates; ++i) order.push_back({all[spec.slots - 1 - i], false});
    for (int i = 0; i < spec.foreign; ++i) order.push_back({all[i], true});
    std::shuffle(order.begin(), order.end(), random);
    s.bytes = random_bytes(order.size() * s.stride, seed + 1);
    s.candidates.resize(spec.slots);
    const uint32_t rounds = spec.sequence.bit_width == 32 ? 0xffffffffu / spec.slots
                                                          : (1u << spec.sequence.bit_width) / spec.slots;
    const uint32_t round = rounds == 0 ? 0 : static_cast<uint32_t>(random()) % rounds;
    for (size_t i = 0; i < order.size(); ++i) {
        const auto [slot, foreign] = order[i];
        uint8_t* packet = s.bytes.data() + i * s.stride;
        write_bits(packet, spec.sequence, round * spec.slots + slot);
        if (spec.batch.bit_width != 0) write_bits(packet, spec.batch, s.batch_number ^ (foreign ? 1 : 0));
        s.slot.push_back(slot);
        s.foreign.push_back(foreign);
        if (!foreign) s.candidates[slot].push_back(i);
    }
    return s;
}

const InputType INT8{"int8", 8};
const OutputType FP16{"fp16", 2, 11, 15};

TwReorder job_of(const Stream& s, uint64_t base, uint64_t out) {
    TwReorder p = plain_reorder();
    p.packets.base = base;
    p.packets.stride = static_cast<uint32_t>(s.stride);
    p.packets.count = s.count();
    p.out = out;
    p.payload_offset = OFFSET;
    p.payload_bytes = s.payload;
    p.slots_per_batch = s.slots;
    p.slot_stride = 2 * s.payload;
    return p;
}

// A slot must be zero if its packet is missing, else one of its packets, whole.
void check_batch(Run& run, const char* what, const Stream& s, const std::vector<uint8_t>& batch) {
    const size_t stride = 2 * s.payload;
    for (uint32_t slot = 0; slot < s.slots; ++slot) {
        const uint8_t* got = batch.data() + slot * stride;
        bool good = s.candidates[slot].empty() &&
                    std::all_of(got, got + stride, [](uint8_t byte) { return byte == 0; });
        for (const size_t i : s.candidates[slot]) {
            const auto want = convert(s.packet(i) + OFFSET, s.payload, INT8, false, FP16);
            good = good || std::memcmp(want.data(), got, stride) == 0;
        }
        run.expect(good, "%s: slot %u (%zu packets)", what, slot, s.candidates[slot].size());
    }
}

std::vector<uint32_t> bitmap_of(const Stream& s) {
    std::vector<uint32_t> bits((s.slots + 31) / 32, 0);
    for (uint32_t slot = 0; slot < s.slots; ++slot) {
        if (!s.candidates[slot].empty()) bits[slot / 32] |= 1u << slot % 32;
    }
    return bits;
}

struct Batch {
    Buffer out, arrived, owners, counts, missing;

    explicit Batch(const Stream& s)
        : out(size_t{2} * s.payload * s.slots, Memory::Device),
          arrived((s.slots + 31) / 32 * 4, Memory::Device),
          owners(4 * s.slots, Memory::Device),
          counts(sizeof(TwCounts), Memory::Device),
          missing(4, Memory::Device) {
        CHECK(cudaMemset(out.data(), 0xff, out.bytes()));
        for (const Buffer* zeroed : {&arrived, &owners, &counts, &missing}) {
            CHECK(cudaMemset(zeroed->data(), 0, zeroed->bytes()));
        }
    }

    // The slots without a packet, by a bitmap; the kernel overlaps the one before it.
    void zero(Run& run, const Stream& s, uint64_t bitmap) {
        const TwZero z{out.address(), bitmap, missing.address(), s.slots, 2 * s.payload, 2 * s.payload, 2, 1, 1};
        launch_zero(run.kernels.kernel("tw_zero_missing"), z, nullptr, true);
    }
};

void check_counts(Run& run, const char* what, const Stream& s, const Batch& batch) {
    const TwCounts got = batch.counts.read<TwCounts>()[0];
    const uint32_t foreign = static_cast<uint32_t>(std::count(s.foreign.begin(), s.foreign.end(), true));
    const uint32_t placed = s.slots - static_cast<uint32_t>(s.missing());
    run.expect(got.placed == placed && got.foreign == foreign && got.refused == 0 &&
                   got.duplicate == s.count() - placed - foreign,
               "%s: counts placed %u duplicate %u foreign %u refused %u", what, got.placed, got.duplicate,
               got.foreign, got.refused);
    run.expect(batch.arrived.read<uint32_t>() == bitmap_of(s), "%s: the arrival bitmap", what);
    run.expect(batch.missing.read<uint32_t>()[0] == s.missing(), "%s: missing slots counted", what);
}

// The slot read from the header, by one and by several warps to a packet (which may be more than have work).
void by_header(Run& run, const char* what, const Stream& s, Memory memory, Shape shape) {
    const Buffer packets(s.bytes, memory);
    Batch batch(s);
    TwReorder p = job_of(s, packets.address(), batch.out.address());
    p.sequence = {s.sequence.bit_offset, s.sequence.bit_width};
    p.batch = {s.batch.bit_offset, s.batch.bit_width};
    p.batch_number = s.batch_number;
    p.arrived = batch.arrived.address();
    p.owners = batch.owners.address();
    p.counts = batch.counts.address();
    launch_reorder(run.kernels.kernel("tw_reorder_int8_fp16_seq"), p, shape, nullptr);
    batch.zero(run, s, batch.arrived.address());
    check_batch(run, what, s, batch.out.read<uint8_t>());
    check_counts(run, what, s, batch);
}

// As the CPU's window decides it: headers to pinned memory, the first packet of each slot wins, (pointer,
// slot) lists back, zeros by the window's own map; the kernel's bitmap must agree with it.
void by_gather(Run& run, const char* what, const Stream& s, size_t header_bytes, Memory memory) {
    const Buffer packets(s.bytes, memory);
    Buffer headers(header_bytes * s.count(), Memory::Pinned);
    std::memset(headers.data(), 0xcc, headers.bytes());
    const TwGather g{{0, packets.address(), 0, static_cast<uint32_t>(s.stride), s.count()},
                     headers.address(), static_cast<uint32_t>(header_bytes), 0};
    launch_gather(run.kernels.kernel("tw_gather_headers"), g, nullptr);
    CHECK(cudaDeviceSynchronize());
    std::vector<uint64_t> addresses;
    std::vector<uint32_t> slots;
    Stream kept = s;
    for (auto& candidates : kept.candidates) candidates.clear();
    for (uint32_t i = 0; i < s.count(); ++i) {
        const uint8_t* header = headers.data() + i * header_bytes;
        run.expect(std::memcmp(header, s.packet(i), header_bytes) == 0, "%s: header %u", what, i);
        const uint32_t slot = read_bits(header, s.sequence) % s.slots;
        if (s.batch.bit_width != 0 && read_bits(header, s.batch) != s.batch_number) continue;
        if (!kept.candidates[slot].empty()) continue;
        kept.candidates[slot].push_back(i);
        addresses.push_back(packets.address() + i * s.stride);
        slots.push_back(slot);
    }
    const Buffer address_list(addresses, Memory::Pinned), slot_list(slots, Memory::Pinned);
    const Buffer map(bitmap_of(kept), Memory::Pinned);
    Batch batch(s);
    TwReorder p = job_of(s, 0, batch.out.address());
    p.packets.addresses = address_list.address();
    p.packets.count = static_cast<uint32_t>(addresses.size());
    p.slots = slot_list.address();
    p.arrived = batch.arrived.address();
    launch_reorder(run.kernels.kernel("tw_reorder_int8_fp16"), p, {8, 1}, nullptr);
    batch.zero(run, s, map.address());
    check_batch(run, what, kept, batch.out.read<uint8_t>());
    run.expect(batch.arrived.read<uint32_t>() == bitmap_of(kept), "%s: the bitmap differs from the window", what);
    run.expect(batch.missing.read<uint32_t>()[0] == kept.missing(), "%s: missing slots counted", what);
}

// Slot-major lists: zeros and payloads in one launch.
void by_place(Run& run, const char* what, const Stream& s, bool indexed, Memory memory) {
    const Buffer packets(s.bytes, memory);
    std::vector<uint64_t> addresses(s.slots, 0);
    std::vector<uint32_t> numbers(s.slots, TW_NONE);
    Stream kept = s;
    for (uint32_t slot = 0; slot < s.slots; ++slot) {
        if (s.candidates[slot].empty()) continue;
        kept.candidates[slot].resize(1);
        numbers[slot] = static_cast<uint32_t>(s.candidates[slot][0]);
        addresses[slot] = packets.address() + numbers[slot] * s.stride;
    }
    const Buffer address_list(addresses), number_list(numbers);
    Batch batch(s);
    TwReorder p = job_of(s, packets.address(), batch.out.address());
    p.packets.count = s.slots;
    if (indexed) {
        p.packets.index = number_list.address();
    } else {
        p.packets.addresses = address_list.address();
    }
    p.packets.base = packets.address();
    launch_reorder(run.kernels.kernel("tw_reorder_int8_fp16"), p, {4, 1}, nullptr);
    check_batch(run, what, kept, batch.out.read<uint8_t>());
}

// Slots beyond the batch write nothing and are counted.
void refused(Run& run, const Stream& s) {
    const Buffer packets(s.bytes);
    std::vector<uint32_t> slots = s.slot;
    slots[0] = s.slots;
    slots[1] = 0xffffffffu;
    Stream kept = s;
    for (auto& candidates : kept.candidates) candidates.clear();
    for (uint32_t i = 2; i < s.count(); ++i) kept.candidates[slots[i]].push_back(i);
    const Buffer list(slots);
    Batch batch(s);
    TwReorder p = job_of(s, packets.address(), batch.out.address());
    p.slots = list.address();
    p.counts = batch.counts.address();
    p.arrived = batch.arrived.address();
    launch_reorder(run.kernels.kernel("tw_reorder_int8_fp16"), p, {2, 2}, nullptr);
    batch.zero(run, s, batch.arrived.address());
    check_batch(run, "refused", kept, batch.out.read<uint8_t>());
    const TwCounts got = batch.counts.read<TwCounts>()[0];
    run.expect(got.refused == 2 && got.placed == s.count() - 2, "refused: %u placed: %u", got.refused, got.placed);
}

}  // namespace

void test_modes(Run& run) {
    const uint32_t slots = run.reduced ? 64 : 4096;
    const StreamSpec specs[] = {
        {slots, 1176, 0, {128, 12}, {0, 0}, 0, 0, 0},        // the documented stream
        {slots, 1176, 0, {336, 16}, {0, 0}, 5, 3, 0},        // routable, with losses
        {slots, 1001, 3, {333, 32}, {400, 7}, 9, 7, 11},     // nothing aligned, a batch number
        {slots / 2, 96, 1, {131, 21}, {160, 1}, static_cast<int>(slots / 8), 5, static_cast<int>(slots / 4)},
        {slots, 17, 6, {64, 12}, {90, 32}, slots > 64 ? 4000 : 60, 2, 50},  // hardly anything came
    };
    const Shape shapes[] = {{4, 1}, {1, 5}, {8, 2}};
    int n = 0;
    for (const StreamSpec& spec : specs) {
        const Stream s = make_stream(spec, 7 + n);
        char what[64];
        for (const Memory memory : {Memory::Device, Memory::Pinned}) {
            const char* where = memory == Memory::Device ? "device" : "pinned";
            for (const Shape& shape : shapes) {
                std::snprintf(what, sizeof what, "by header, stream %d, %s, %u warps", n, where, shape.pieces);
                by_header(run, what, s, memory, shape);
            }
            for (const size_t bytes : {64, 60, 57}) {
                if (8 * bytes < s.sequence.bit_offset + s.sequence.bit_width) continue;
                std::snprintf(what, sizeof what, "by gather of %zu, stream %d, %s", bytes, n, where);
                by_gather(run, what, s, bytes, memory);
            }
            std::snprintf(what, sizeof what, "by place, stream %d, %s", n, where);
            by_place(run, what, s, false, memory);
            by_place(run, what, s, true, memory);
        }
        if (spec.duplicates == 0) refused(run, s);
        ++n;
    }
    std::printf("modes: %d streams from device and pinned memory, slot by header, by gather and list, by place\n", n);
}
