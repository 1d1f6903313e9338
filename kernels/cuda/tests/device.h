// The CUDA side of the test and bench programs: every call checked, the compiled module found by name as
// any launcher finds it, memory that gives itself back.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../abi.h"

#define CHECK(call)                                                                          \
    do {                                                                                     \
        const cudaError_t error_ = (call);                                                   \
        if (error_ != cudaSuccess) {                                                         \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,               \
                         cudaGetErrorString(error_));                                        \
            std::exit(3);                                                                    \
        }                                                                                    \
    } while (0)

// A compiled module: fatbin, cubin or PTX.
class Module {
  public:
    explicit Module(const char* file) {
        CHECK(cudaLibraryLoadFromFile(&library_, file, nullptr, nullptr, 0, nullptr, nullptr, 0));
    }
    cudaKernel_t kernel(const std::string& name) const {
        cudaKernel_t kernel;
        const cudaError_t error = cudaLibraryGetKernel(&kernel, library_, name.c_str());
        if (error != cudaSuccess) {
            std::fprintf(stderr, "no kernel %s: %s\n", name.c_str(), cudaGetErrorString(error));
            std::exit(3);
        }
        return kernel;
    }

  private:
    cudaLibrary_t library_;
};

struct Shape {
    unsigned packets;  // per block
    unsigned pieces;   // warps to one packet
};

// `overlap`: the kernel may start while the one before it is finishing.
template <class Params>
void launch(cudaKernel_t kernel, dim3 grid, dim3 block, const Params& params, cudaStream_t stream,
            bool overlap = false) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = overlap ? 1 : 0;
    void* args[] = {const_cast<Params*>(&params)};
    CHECK(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), args));
}

inline unsigned blocks_for(uint64_t items, uint64_t per_block) {
    return static_cast<unsigned>((items + per_block - 1) / per_block);
}

inline void launch_reorder(cudaKernel_t kernel, const TwReorder& p, Shape shape, cudaStream_t stream,
                           bool overlap = false) {
    launch(kernel, {blocks_for(p.packets.count, shape.packets), shape.pieces}, {32, shape.packets}, p, stream,
           overlap);
}

inline void launch_zero(cudaKernel_t kernel, const TwZero& p, cudaStream_t stream,
                        bool overlap = false) {
    launch(kernel, blocks_for(p.slots_per_batch, 4), {32, 4}, p, stream, overlap);
}

inline void launch_gather(cudaKernel_t kernel, const TwGather& p, cudaStream_t stream) {
    const uint64_t both = p.out | p.header_bytes;
    const uint64_t width = both % 16 == 0 ? 16 : both % 4 == 0 ? 4 : 1;
    const uint64_t threads = static_cast<uint64_t>(p.packets.count) * p.header_bytes / width;
    launch(kernel, blocks_for(threads, 256), {256}, p, stream);
}

enum class Memory { Device, Pinned };

// Memory that the GPU reaches, of exactly the size asked for (a checker sees one byte too far).
class Buffer {
  public:
    Buffer(size_t bytes, Memory memory) : memory_(memory), bytes_(bytes) {
        if (memory == Memory::Device) {
            CHECK(cudaMalloc(&data_, bytes));
        } else {
            CHECK(cudaHostAlloc(&data_, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
        }
    }
    // A device copy of what the host has.
    template <class T>
    explicit Buffer(const std::vector<T>& from, Memory memory = Memory::Device)
        : Buffer(from.size() * sizeof(T), memory) {
        CHECK(cudaMemcpy(data_, from.data(), bytes_, cudaMemcpyDefault));
    }
    Buffer(Buffer&& other) noexcept : memory_(other.memory_), bytes_(other.bytes_), data_(other.data_) {
        other.data_ = nullptr;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() {
        if (data_ == nullptr) return;
        if (memory_ == Memory::Device) {
            cudaFree(data_);
        } else {
            cudaFreeHost(data_);
        }
    }
    uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
    uint8_t* data() const { return static_cast<uint8_t*>(data_); }
    size_t bytes() const { return bytes_; }
    template <class T>
    std::vector<T> read() const {
        std::vector<T> out(bytes_ / sizeof(T));
        CHECK(cudaMemcpy(out.data(), data_, bytes_, cudaMemcpyDefault));
        return out;
    }

  private:
    Memory memory_;
    size_t bytes_;
    void* data_ = nullptr;
};
