// Every type pair, byte order, payload length and alignment: the slot and the bytes around it.
#include <algorithm>

#include "run.h"

namespace {

constexpr size_t ALIGNMENTS = 16;
constexpr size_t OFFSET = 64;  // header before the payload
constexpr size_t LONGEST = 9000;
constexpr size_t GUARD = 64;

// Integers of all magnitudes, so that every rounding of an int32 occurs, in the byte order of the test.
std::vector<uint8_t> payload_of(const InputType& in, bool network, uint64_t seed) {
    std::vector<uint8_t> bytes = random_bytes(LONGEST, seed);
    if (in.bits != 32) return bytes;
    std::mt19937_64 random(seed);
    for (size_t i = 0; i + 4 <= LONGEST; i += 4) {
        const int32_t value = static_cast<int32_t>(random()) >> (random() % 32);
        for (int b = 0; b < 4; ++b) {
            bytes[i + b] = static_cast<uint8_t>(value >> (8 * (network ? 3 - b : b)));
        }
    }
    return bytes;
}

struct Pair {
    InputType in;
    OutputType out;
    bool network;
    std::string kernel;
};

// The place of one length in the output of a group of them.
struct Place {
    size_t length, begin, bytes, first, stride;
};

size_t slot_of(size_t packet, size_t length) {
    return (packet * 5 + length) % ALIGNMENTS;
}

std::vector<Place> places_of(const Pair& pair, const std::vector<size_t>& lengths) {
    std::vector<Place> places;
    size_t at = 0;
    const size_t width = pair.out.bytes;
    for (const size_t length : lengths) {
        Place place;
        place.length = length;
        place.begin = at;
        // The slots begin at every alignment that the element allows, and the stride leaves gaps.
        place.first = at + GUARD + width * (length % std::max<size_t>(1, 16 / width));
        place.stride = width * (length * 8 / pair.in.bits + length % 3);
        place.bytes = place.first + ALIGNMENTS * place.stride + GUARD - at;
        place.bytes = (place.bytes + 15) / 16 * 16;
        at += place.bytes;
        places.push_back(place);
    }
    return places;
}

TwReorder job_of(const Pair& pair, const Place& place, uint64_t addresses, uint64_t slots, uint64_t out) {
    TwReorder p = plain_reorder();
    p.packets.addresses = addresses;
    p.packets.count = ALIGNMENTS;
    p.slots = slots;
    p.out = out + place.first;
    p.payload_offset = OFFSET;
    p.payload_bytes = static_cast<uint32_t>(place.length);
    p.slots_per_batch = ALIGNMENTS;
    p.slot_stride = static_cast<uint32_t>(place.stride);
    p.network_order = pair.network;
    const uint32_t lines[] = {0, 16, 1, 64, 128};
    p.line_bytes = lines[place.length % 5];
    return p;
}

const Shape SHAPES[] = {{4, 1}, {8, 1}, {2, 2}, {1, 5}, {8, 3}, {1, 1}};

// The packets at all alignments; in reduced runs a buffer each that ends with the payload.
struct Packets {
    std::vector<Buffer> buffers;
    std::vector<uint64_t> addresses;

    Packets(const std::vector<std::vector<uint8_t>>& payloads, size_t length, bool exact) {
        if (!exact) {
            buffers.emplace_back(ALIGNMENTS * (OFFSET + LONGEST + 40), Memory::Device);
            CHECK(cudaMemset(buffers[0].data(), 0xa5, buffers[0].bytes()));
        }
        for (size_t i = 0; i < ALIGNMENTS; ++i) {
            if (exact) buffers.emplace_back(i + OFFSET + length, Memory::Device);
            uint8_t* at = exact ? buffers[i].data() + i
                                : buffers[0].data() + (OFFSET + LONGEST + 24) / 16 * 16 * i + i;
            CHECK(cudaMemset(at, 0x5a, OFFSET));
            CHECK(cudaMemcpy(at + OFFSET, payloads[i].data(), length, cudaMemcpyDefault));
            addresses.push_back(reinterpret_cast<uint64_t>(at));
        }
    }
};

struct Lists {
    Buffer slots;  // u32[ALIGNMENTS] for each rotation

    static Buffer make() {
        std::vector<uint32_t> all;
        for (size_t rotation = 0; rotation < ALIGNMENTS; ++rotation) {
            for (size_t i = 0; i < ALIGNMENTS; ++i) {
                all.push_back(static_cast<uint32_t>(slot_of(i, rotation)));
            }
        }
        return Buffer(all);
    }
    Lists() : slots(make()) {}
    uint64_t of(size_t length) const { return slots.address() + 4 * ALIGNMENTS * (length % ALIGNMENTS); }
};

struct Expected {
    std::vector<std::vector<uint8_t>> payloads, slots;
};

Expected expected_of(const Pair& pair, uint64_t seed) {
    Expected e;
    e.payloads.resize(ALIGNMENTS);
    e.slots.resize(ALIGNMENTS);
    on_all_cores(ALIGNMENTS, [&](size_t i) {
        e.payloads[i] = payload_of(pair.in, pair.network, seed + i);
        e.slots[i] = pair.kernel == "tw_copy" ? e.payloads[i]
                                              : convert(e.payloads[i].data(), LONGEST, pair.in, pair.network, pair.out);
    });
    return e;
}

// One length, slots and everything between and around them. Empty = right.
std::string compare(const Pair& pair, const Place& place, const Expected& e, const uint8_t* got, uint8_t poison) {
    std::vector<uint8_t> want(place.bytes, poison);
    for (size_t i = 0; i < ALIGNMENTS; ++i) {
        const size_t bytes = place.length * 8 / pair.in.bits * pair.out.bytes;
        const size_t at = place.first - place.begin + place.stride * slot_of(i, place.length);
        std::copy_n(e.slots[i].begin(), bytes, want.begin() + at);
    }
    if (std::memcmp(want.data(), got + place.begin, place.bytes) == 0) return "";
    size_t byte = 0;
    while (want[byte] == got[place.begin + byte]) ++byte;
    char text[200];
    std::snprintf(text, sizeof text, "%s%s, payload of %zu: byte %zd after the first slot is %02x, not %02x",
                  pair.kernel.c_str(), pair.network ? " (network)" : "", place.length,
                  static_cast<ssize_t>(byte + place.begin - place.first), got[place.begin + byte], want[byte]);
    return text;
}

// A group of lengths: poison, all launches, one copy back, all comparisons.
void run_group(Run& run, const Pair& pair, const Expected& e, const std::vector<size_t>& lengths,
               const Packets* shared, const Lists& lists, int group, Buffer& device, Buffer& host) {
    const std::vector<Place> places = places_of(pair, lengths);
    const size_t bytes = places.back().begin + places.back().bytes;
    if (bytes > device.bytes()) {
        std::fprintf(stderr, "a group of %zu bytes\n", bytes);
        std::exit(3);
    }
    // NaN in every float format; and another value, for outputs that are all ones.
    const uint8_t poison = group % 2 == 0 ? 0xff : 0x7f;
    CHECK(cudaMemsetAsync(device.data(), poison, bytes, nullptr));
    const cudaKernel_t kernel = run.kernels.kernel(pair.kernel);
    std::vector<Packets> own;
    std::vector<Buffer> pointers;
    for (const Place& place : places) {
        if (shared == nullptr) own.emplace_back(e.payloads, place.length, true);
        if (shared == nullptr || pointers.empty()) {
            pointers.emplace_back(shared == nullptr ? own.back().addresses : shared->addresses);
        }
        const TwReorder p = job_of(pair, place, pointers.back().address(), lists.of(place.length), device.address());
        launch_reorder(kernel, p, SHAPES[place.length % 6], nullptr, place.length % 2 == 0);
    }
    CHECK(cudaMemcpy(host.data(), device.data(), bytes, cudaMemcpyDefault));
    std::vector<std::string> wrong(places.size());
    on_all_cores(places.size(), [&](size_t i) { wrong[i] = compare(pair, places[i], e, host.data(), poison); });
    for (const auto& text : wrong) run.expect(text.empty(), "%s", text.c_str());
    run.checked += places.size() * (ALIGNMENTS - 1);
}

std::vector<size_t> lengths_of(bool reduced) {
    std::vector<size_t> lengths;
    for (size_t length = 1; length <= LONGEST; ++length) {
        const bool kept = length <= 12 || (length >= 30 && length <= 36) || length == 128 || length == 1176 ||
                          length == 1177;
        if (!reduced || kept) lengths.push_back(length);
    }
    return lengths;
}

}  // namespace

void test_lengths(Run& run) {
    std::vector<Pair> pairs;
    for (const InputType& in : INPUTS) {
        for (const OutputType& out : OUTPUTS) {
            for (int network = 0; network <= (in.bits > 8 ? 1 : 0); ++network) {
                pairs.push_back({in, out, network == 1, std::string("tw_reorder_") + in.name + "_" + out.name});
            }
        }
    }
    pairs.push_back({{"bytes", 8}, {"bytes", 1, 0, 0}, false, "tw_copy"});
    const std::vector<size_t> lengths = lengths_of(run.reduced);
    Buffer device(size_t{64 << 20} * (run.reduced ? 1 : 3), Memory::Device);
    Buffer host(device.bytes(), Memory::Pinned);
    const Lists lists;
    for (const Pair& pair : pairs) {
        const Expected e = expected_of(pair, 1000 * pair.in.bits + pair.network);
        const Packets shared(e.payloads, LONGEST, false);
        int group = 0;
        for (size_t begin = 0; begin < lengths.size(); begin += 64, ++group) {
            const size_t end = std::min(begin + 64, lengths.size());
            run_group(run, pair, e, {lengths.begin() + begin, lengths.begin() + end},
                      run.reduced ? nullptr : &shared, lists, group, device, host);
        }
    }
    std::printf("lengths: %zu pairs and byte orders x %zu lengths (%zu to %zu) x %zu alignments%s\n", pairs.size(),
                lengths.size(), lengths.front(), lengths.back(), ALIGNMENTS,
                run.reduced ? ", each packet in a buffer of its own length" : "");
}
