// A plan at work: engines, contexts, inferences.
#include "common.hpp"

#include <type_traits>

using nvinfer1::ICudaEngine;
using nvinfer1::IExecutionContext;

namespace {

class Profiler final : public nvinfer1::IProfiler {
public:
    void reportLayerTime(char const *layer, float milliseconds) noexcept override {
        if (fn != nullptr) {
            fn(user, layer, milliseconds);
        }
    }

    twt_layer_fn fn = nullptr;
    void *user = nullptr;
};

int32_t shape_to(nvinfer1::Dims const &from, int64_t *to) {
    for (int32_t i = 0; i < from.nbDims && i < TWT_MAX_DIMS; ++i) {
        to[i] = from.d[i];
    }
    return from.nbDims;
}

}  // namespace

struct twt_engine {
    twt_library *library;
    // Dropped from the last to the first: the engine needs its runtime.
    std::unique_ptr<nvinfer1::IRuntime> runtime;
    std::unique_ptr<ICudaEngine> engine;
};

struct twt_context {
    twt_library *library;
    Profiler profiler;
    std::unique_ptr<IExecutionContext> context;
};

namespace {

void describe(ICudaEngine const &engine, int32_t index, twt_tensor *out) {
    using nvinfer1::OptProfileSelector;
    *out = twt_tensor{};
    char const *name = engine.getIOTensorName(index);
    if (name == nullptr) {
        throw twt::Failure{TWT_ARGUMENT, "the engine has no tensor of this number"};
    }
    out->name = name;
    out->is_input = engine.getTensorIOMode(name) == nvinfer1::TensorIOMode::kINPUT ? 1 : 0;
    out->type = static_cast<int32_t>(engine.getTensorDataType(name));
    out->dims = shape_to(engine.getTensorShape(name), out->shape);
    if (out->is_input != 0 && engine.getNbOptimizationProfiles() > 0) {
        auto const min = engine.getProfileShape(name, 0, OptProfileSelector::kMIN);
        auto const opt = engine.getProfileShape(name, 0, OptProfileSelector::kOPT);
        auto const max = engine.getProfileShape(name, 0, OptProfileSelector::kMAX);
        bool const given = min.nbDims == out->dims && opt.nbDims == out->dims && max.nbDims == out->dims;
        if (given) {
            shape_to(min, out->min);
            shape_to(opt, out->opt);
            shape_to(max, out->max);
            out->has_profile = 1;
        }
    }
}

void inspect(twt_engine const &engine, twt_bytes *json) {
    std::unique_ptr<nvinfer1::IEngineInspector> inspector(engine.engine->createEngineInspector());
    char const *text = nullptr;
    if (inspector != nullptr) {
        text = inspector->getEngineInformation(nvinfer1::LayerInformationFormat::kJSON);
    }
    if (text == nullptr) {
        throw engine.library->log.failure(TWT_INSPECT, "the inspector gives nothing");
    }
    twt::hand_over(text, std::strlen(text), json);
}

// The code, with the library's last complaint; the hot path comes here only when something failed.
int32_t refuse(twt_context &context, twt_error *error, int32_t code, char const *what) {
    return twt::guarded(error, [&] { throw context.library->log.failure(code, what); });
}

}  // namespace

extern "C" {

int32_t twt_load(twt_library *library, const void *plan, size_t size, twt_engine **out,
                 twt_error *error) {
    return twt::guarded(error, [&] {
        twt::require(library != nullptr && plan != nullptr && out != nullptr, "a null pointer");
        *out = nullptr;
        library->log.forget();
        std::unique_ptr<twt_engine> made(new twt_engine{library, nullptr, nullptr});
        made->runtime.reset(static_cast<nvinfer1::IRuntime *>(
            library->make_runtime(&library->log, NV_TENSORRT_VERSION)));
        if (made->runtime == nullptr) {
            throw library->log.failure(TWT_NO_BUILDER, "the library gives no runtime");
        }
        made->engine.reset(made->runtime->deserializeCudaEngine(plan, size));
        if (made->engine == nullptr) {
            throw library->log.failure(TWT_LOAD, "the plan is refused");
        }
        *out = made.release();
    });
}

void twt_engine_free(twt_engine *engine) { delete engine; }

int32_t twt_engine_tensors(const twt_engine *engine) { return engine->engine->getNbIOTensors(); }

int32_t twt_engine_tensor(const twt_engine *engine, int32_t index, twt_tensor *out, twt_error *error) {
    return twt::guarded(error, [&] {
        twt::require(engine != nullptr && out != nullptr, "a null pointer");
        describe(*engine->engine, index, out);
    });
}

int64_t twt_engine_device_memory(const twt_engine *engine) {
#if TWT_MEMORY_SIZE_V2
    return engine->engine->getDeviceMemorySizeV2();
#else
    return static_cast<int64_t>(engine->engine->getDeviceMemorySize());
#endif
}

int32_t twt_engine_inspect(const twt_engine *engine, twt_bytes *json, twt_error *error) {
    return twt::guarded(error, [&] {
        twt::require(engine != nullptr && json != nullptr, "a null pointer");
        *json = twt_bytes{nullptr, 0};
        inspect(*engine, json);
    });
}

int32_t twt_context_new(twt_engine *engine, twt_context **out, twt_error *error) {
    return twt::guarded(error, [&] {
        twt::require(engine != nullptr && out != nullptr, "a null pointer");
        *out = nullptr;
        std::unique_ptr<twt_context> made(new twt_context{engine->library, {}, nullptr});
        made->context.reset(engine->engine->createExecutionContext());
        if (made->context == nullptr) {
            throw engine->library->log.failure(TWT_CONTEXT, "the engine gives no context");
        }
        *out = made.release();
    });
}

void twt_context_free(twt_context *context) { delete context; }

int32_t twt_context_shape(twt_context *context, const char *input, const int64_t *shape, int32_t dims,
                          twt_error *error) {
    return twt::guarded(error, [&] {
        if (!context->context->setInputShape(input, twt::dims_of(shape, dims))) {
            throw context->library->log.failure(TWT_SHAPE, "the input shape is refused");
        }
    });
}

int32_t twt_context_address(twt_context *context, const char *tensor, uint64_t address,
                            twt_error *error) {
    void *pointer = nullptr;
    static_assert(sizeof pointer == sizeof address, "an address of the device");
    std::memcpy(&pointer, &address, sizeof pointer);
    if (context->context->setTensorAddress(tensor, pointer)) {
        return TWT_OK;
    }
    return refuse(*context, error, TWT_ADDRESS, "the address is refused");
}

int32_t twt_context_enqueue(twt_context *context, void *stream, twt_error *error) {
    // enqueueV3 is noexcept, as are the two above it.
    if (context->context->enqueueV3(static_cast<cudaStream_t>(stream))) {
        return TWT_OK;
    }
    return refuse(*context, error, TWT_ENQUEUE, "the inference could not be enqueued");
}

void twt_context_debug_sync(twt_context *context, int32_t on) {
    // What was complained of before is not about the layer that may fail now.
    context->library->log.forget();
    context->context->setDebugSync(on != 0);
}

void twt_context_profiler(twt_context *context, twt_layer_fn layer, void *user) {
    context->profiler.fn = layer;
    context->profiler.user = user;
    context->context->setProfiler(layer != nullptr ? &context->profiler : nullptr);
}

}  // extern "C"

static_assert(std::is_standard_layout<twt_build>::value && sizeof(twt_build) == 312, "src/ffi.rs");
static_assert(std::is_standard_layout<twt_tensor>::value && sizeof(twt_tensor) == 280, "src/ffi.rs");
static_assert(sizeof(twt_error) == 1028 && sizeof(twt_versions) == 28, "src/ffi.rs");
