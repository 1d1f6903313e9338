// What depends on the channel: normalisation and NHWC, for every pair that has them, with missing slots.
#include "run.h"

namespace {

struct Images {
    uint32_t channels, plane, slots, payload;  // payload in bytes
};

struct Case {
    InputType in;
    OutputType out;
    bool network, affine, nhwc;
    Images images;
};

std::string name_of(const Case& c) {
    return std::string("tw_reorder_") + c.in.name + "_" + c.out.name + (c.affine ? "_affine" : "") +
           (c.nhwc ? "_nhwc" : "");
}

bool is_missing(uint32_t slot) {
    return slot % 7 == 3;
}

// Channel and place in the batch of element `e`, step by step.
size_t place_of(const Case& c, size_t e, uint32_t* channel) {
    const size_t image = e / (c.images.plane * c.images.channels);
    const size_t rest = e % (c.images.plane * c.images.channels);
    *channel = static_cast<uint32_t>(rest / c.images.plane);
    const size_t pixel = rest % c.images.plane;
    return c.nhwc ? (image * c.images.plane + pixel) * c.images.channels + *channel : e;
}

std::vector<uint8_t> model(const Case& c, const std::vector<uint8_t>& payloads, const std::vector<float>& ab) {
    const size_t per_slot = c.images.payload * 8 / c.in.bits;
    std::vector<uint8_t> batch(per_slot * c.images.slots * c.out.bytes, 0xff);
    for (size_t e = 0; e < per_slot * c.images.slots; ++e) {
        uint32_t channel;
        const size_t at = place_of(c, e, &channel);
        uint64_t bits = 0;
        const uint32_t slot = static_cast<uint32_t>(e / per_slot);
        if (!is_missing(slot)) {
            const int64_t x = element(payloads.data() + slot * c.images.payload, c.in, c.network, e % per_slot);
            bits = c.affine ? round_affine(c.out, x, ab[2 * channel], ab[2 * channel + 1]) : round_integer(c.out, x);
        }
        put(batch, at * c.out.bytes, c.out, bits);
    }
    return batch;
}

void check(Run& run, const Case& c, bool by_place, const std::vector<float>& ab) {
    const size_t payload = c.images.payload;
    const size_t skew = c.images.payload % 5;  // packets at odd alignments in some cases
    const std::vector<uint8_t> payloads = random_bytes(payload * c.images.slots, payload + c.in.bits);
    const std::vector<uint8_t> want = model(c, payloads, ab);
    std::vector<uint8_t> shifted(skew, 0);
    shifted.insert(shifted.end(), payloads.begin(), payloads.end());
    const Buffer packets(shifted), batch(want), affine(ab);
    std::vector<uint64_t> addresses;
    std::vector<uint32_t> slots, bitmap((c.images.slots + 31) / 32, 0);
    for (uint32_t slot = 0; slot < c.images.slots; ++slot) {
        const bool missing = is_missing(slot);
        if (!missing) bitmap[slot / 32] |= 1u << slot % 32;
        if (missing && !by_place) continue;
        addresses.push_back(missing ? 0 : packets.address() + skew + slot * payload);
        slots.push_back(slot);
    }
    const Buffer address_list(addresses), slot_list(slots), map(bitmap);
    CHECK(cudaMemset(batch.data(), 0xff, batch.bytes()));
    TwReorder p = plain_reorder();
    p.packets.addresses = address_list.address();
    p.packets.count = static_cast<uint32_t>(addresses.size());
    p.slots = by_place ? 0 : slot_list.address();
    p.out = batch.address();
    p.affine = c.affine ? affine.address() : 0;
    p.payload_bytes = c.images.payload;
    p.slots_per_batch = c.images.slots;
    p.slot_stride = static_cast<uint32_t>(payload * 8 / c.in.bits * c.out.bytes);
    p.network_order = c.network;
    p.channels = c.images.channels;
    p.plane = c.images.plane;
    launch_reorder(run.kernels.kernel(name_of(c)), p, {4, 1}, nullptr);
    if (!by_place) {
        const TwZero z{batch.address(), map.address(), 0, c.images.slots, p.slot_stride, p.slot_stride,
                       static_cast<uint32_t>(c.out.bytes), c.images.channels, c.images.plane};
        launch_zero(run.kernels.kernel(c.nhwc ? "tw_zero_missing_nhwc" : "tw_zero_missing"), z, nullptr);
    }
    const std::vector<uint8_t> got = batch.read<uint8_t>();
    size_t byte = 0;
    while (byte < want.size() && got[byte] == want[byte]) ++byte;
    run.expect(byte == want.size(), "%s%s, %u channels of %u in payloads of %u, %s: byte %zu", name_of(c).c_str(),
               c.network ? " (network)" : "", c.images.channels, c.images.plane, c.images.payload,
               by_place ? "by place" : "by list", byte);
}

}  // namespace

void test_planes(Run& run) {
    // The documented image, then planes that end inside packets, chunks and bytes.
    const Images all[] = {{3, 224 * 224, 512, 1176}, {3, 35, 42, 40}, {1, 96, 16, 12}, {4, 9, 36, 24}, {5, 1, 30, 4}};
    const std::vector<float> ab = {0.017124754f, -2.117904f, 0.0175070f, -2.0357141f, 1.0f / 3, 1e-6f, -4.0f, 0.0f,
                                   1e-9f, -1e-7f};
    uint64_t cases = 0;
    for (const Images& images : all) {
        if (run.reduced && images.slots > 100) continue;
        for (const InputType& in : INPUTS) {
            for (int out = 0; out < 3; ++out) {
                for (int bits = 0; bits < 8; ++bits) {
                    const bool network = (bits & 4) != 0, affine = (bits & 1) != 0, nhwc = (bits & 2) != 0;
                    if ((!affine && !nhwc) || (network && in.bits <= 8)) continue;
                    for (const bool by_place : {false, true}) {
                        check(run, {in, OUTPUTS[out], network, affine, nhwc, images}, by_place, ab);
                        ++cases;
                    }
                }
            }
        }
    }
    std::printf("planes: %llu cases, one slot in seven missing\n", static_cast<unsigned long long>(cases));
}
