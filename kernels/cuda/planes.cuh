// The place of an element in its image, for what depends on the channel.
#pragma once

#include <cstdint>

namespace tw {

// Packets carry images plane by plane (NCHW); this walks along their elements.
struct Pixel {
    uint32_t plane;     // elements of one channel
    uint32_t channels;
    uint32_t image;
    uint32_t channel;
    uint32_t pixel;  // in its plane

    __device__ Pixel(uint32_t element, uint32_t plane, uint32_t channels)
        : plane(plane), channels(channels) {
        const uint32_t planes_before = element / plane;
        pixel = element - planes_before * plane;
        image = planes_before / channels;
        channel = planes_before - image * channels;
    }

    __device__ void next() {
        if (++pixel == plane) {
            pixel = 0;
            if (++channel == channels) {
                channel = 0;
                ++image;
            }
        }
    }

    // The element's number in an NHWC batch.
    __device__ size_t nhwc() const {
        return (static_cast<size_t>(image) * plane + pixel) * channels + channel;
    }
};

}  // namespace tw
