// From an ONNX model to a plan.
#include "common.hpp"

using nvinfer1::IBuilder;
using nvinfer1::IBuilderConfig;
using nvinfer1::INetworkDefinition;

namespace {

#if TWT_PROGRESS
class Progress final : public nvinfer1::IProgressMonitor {
public:
    explicit Progress(twt_build const &build) : fn_(build.progress), user_(build.progress_user) {}

    void phaseStart(char const *phase, char const *, int32_t steps) noexcept override {
        std::lock_guard<std::mutex> held(mutex_);
        // Phases nest; the innermost one is shown, under the number that its parent's step has.
        steps_ = steps;
        ask(phase, 0);
    }

    bool stepComplete(char const *phase, int32_t step) noexcept override {
        std::lock_guard<std::mutex> held(mutex_);
        ask(phase, step + 1);
        return !stopped_;
    }

    void phaseFinish(char const *) noexcept override {}

    bool stopped() {
        std::lock_guard<std::mutex> held(mutex_);
        return stopped_;
    }

private:
    void ask(char const *phase, int32_t step) {
        // Steps of an outer phase that come after an inner one began have no total of ours.
        int32_t const steps = step <= steps_ ? steps_ : 0;
        if (!stopped_ && fn_(user_, phase, step, steps) == 0) {
            stopped_ = true;
        }
    }

    twt_progress_fn fn_;
    void *user_;
    std::mutex mutex_;
    int32_t steps_ = 0;
    bool stopped_ = false;
};
#endif

bool implicit_int8(twt_build const &build) {
    return build.table_kind != TWT_TABLE_NONE || build.dummy_range > 0.0F;
}

#if TWT_IMPLICIT_INT8
// All of it is on its way out of the library, and the versions that have it have nothing else.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

// Hands a table over, and no batch: what the table does not name gets no range.
template <typename Calibrator>
class Table final : public Calibrator {
public:
    explicit Table(twt_build const &build) : data_(build.table), size_(build.table_size) {}

    int32_t getBatchSize() const noexcept override { return 1; }

    bool getBatch(void *[], char const *[], int32_t) noexcept override { return false; }

    void const *readCalibrationCache(std::size_t &length) noexcept override {
        length = size_;
        return data_;
    }

    void writeCalibrationCache(void const *, std::size_t) noexcept override {}

private:
    void const *data_;
    std::size_t size_;
};

std::unique_ptr<nvinfer1::IInt8Calibrator> table_of(twt_build const &build) {
    switch (build.table_kind) {
        case TWT_TABLE_ENTROPY:
            return std::make_unique<Table<nvinfer1::IInt8EntropyCalibrator2>>(build);
        case TWT_TABLE_MIN_MAX:
            return std::make_unique<Table<nvinfer1::IInt8MinMaxCalibrator>>(build);
        default:
            return nullptr;
    }
}

void set_range(nvinfer1::ITensor *tensor, float range) {
    bool const real = tensor != nullptr && (tensor->getType() == nvinfer1::DataType::kFLOAT ||
                                            tensor->getType() == nvinfer1::DataType::kHALF);
    if (real && !tensor->setDynamicRange(-range, range)) {
        throw twt::Failure{TWT_CONFIG, std::string("a range is refused for ") + tensor->getName()};
    }
}

void set_ranges(INetworkDefinition &network, float range) {
    for (int32_t i = 0; i < network.getNbInputs(); ++i) {
        set_range(network.getInput(i), range);
    }
    for (int32_t i = 0; i < network.getNbLayers(); ++i) {
        nvinfer1::ILayer *layer = network.getLayer(i);
        for (int32_t j = 0; j < layer->getNbOutputs(); ++j) {
            set_range(layer->getOutput(j), range);
        }
    }
}
#endif

uint32_t network_flags(twt_build const &build) {
    // Implicit int8 is the library's choice of types, which a strongly typed network forbids.
    [[maybe_unused]] bool const strong = !implicit_int8(build);
    uint32_t flags = 0;
#if TWT_EXPLICIT_BATCH
    flags |= 1U << static_cast<uint32_t>(nvinfer1::NetworkDefinitionCreationFlag::kEXPLICIT_BATCH);
#endif
#if TWT_STRONG_ON_REQUEST
    // For fp32 too: the model's own types are what was asked for.
    if (strong) {
        flags |=
            1U << static_cast<uint32_t>(nvinfer1::NetworkDefinitionCreationFlag::kSTRONGLY_TYPED);
    }
#endif
    return flags;
}

void set_precision(IBuilderConfig &config, twt_build const &build) {
    // fp32 means fp32: ten bits of mantissa are not it.
    config.clearFlag(nvinfer1::BuilderFlag::kTF32);
#if TWT_IMPLICIT_INT8
    bool const weak = TWT_WEAK_TYPES || implicit_int8(build);
    if (weak && build.precision != TWT_FP32) {
        config.setFlag(nvinfer1::BuilderFlag::kFP16);
    }
    if (weak && build.precision == TWT_INT8) {
        config.setFlag(nvinfer1::BuilderFlag::kINT8);
    }
#else
    if (implicit_int8(build)) {
        throw twt::Failure{TWT_UNSUPPORTED,
                           "this TensorRT takes int8 from the model's own Q/DQ nodes alone"};
    }
#endif
}

#if TWT_IMPLICIT_INT8
#pragma GCC diagnostic pop
#endif

void set_targets(IBuilderConfig &config, twt_build const &build) {
    if (build.nb_targets == 0) {
        return;
    }
#if TWT_TARGETS
    auto const count = static_cast<int32_t>(build.nb_targets);
    bool taken = config.setNbComputeCapabilities(count);
    for (int32_t i = 0; taken && i < count; ++i) {
        auto const target = static_cast<nvinfer1::ComputeCapability>(build.targets[i]);
        taken = config.setComputeCapability(target, i);
    }
    if (!taken) {
        throw twt::Failure{TWT_CONFIG, "a compute capability is refused"};
    }
#else
    (void)config;
    throw twt::Failure{TWT_UNSUPPORTED,
                       "this TensorRT builds only for the GPU of the machine that it runs on"};
#endif
}

void set_profile(IBuilder &builder, IBuilderConfig &config, twt_build const &build, twt::Log &log) {
    if (build.input == nullptr) {
        return;
    }
    using nvinfer1::OptProfileSelector;
    nvinfer1::IOptimizationProfile *profile = builder.createOptimizationProfile();
    bool const taken =
        profile != nullptr &&
        profile->setDimensions(build.input, OptProfileSelector::kMIN,
                               twt::dims_of(build.min, build.dims)) &&
        profile->setDimensions(build.input, OptProfileSelector::kOPT,
                               twt::dims_of(build.opt, build.dims)) &&
        profile->setDimensions(build.input, OptProfileSelector::kMAX,
                               twt::dims_of(build.max, build.dims)) &&
        config.addOptimizationProfile(profile) >= 0;
    if (!taken) {
        throw log.failure(TWT_CONFIG, "the optimization profile is refused");
    }
}

void set_options(IBuilderConfig &config, twt_build const &build) {
    if (build.workspace_bytes > 0) {
        config.setMemoryPoolLimit(nvinfer1::MemoryPoolType::kWORKSPACE, build.workspace_bytes);
    }
    if (build.optimization_level >= 0) {
        config.setBuilderOptimizationLevel(build.optimization_level);
    }
    if (build.detailed != 0) {
        config.setProfilingVerbosity(nvinfer1::ProfilingVerbosity::kDETAILED);
    }
#if TWT_SHARING_ON_REQUEST
    config.setPreviewFeature(nvinfer1::PreviewFeature::kPROFILE_SHARING_0806, true);
#endif
}

using Parser = std::unique_ptr<nvonnxparser::IParser>;

// The network refers to weights that the parser owns, so the parser lives until the build is done.
Parser parse(twt_library &library, INetworkDefinition &network, twt_build const &build) {
    auto make = library.parser();
    Parser parser(static_cast<nvonnxparser::IParser *>(
        make(&network, &library.log, NV_ONNX_PARSER_VERSION)));
    if (parser == nullptr) {
        throw library.log.failure(TWT_NO_BUILDER, "the library gives no ONNX parser");
    }
    // No path: weights beside the file are not part of the engine's key, so they are not read.
    // Some bytes that are no model are read as an empty one.
    if (parser->parse(build.model, build.model_size) && network.getNbOutputs() > 0) {
        return parser;
    }
    std::string why = "the parser refuses the model";
    if (parser->getNbErrors() == 0) {
        why += ": it has no output";
    }
    for (int i = 0; i < parser->getNbErrors() && i < 4; ++i) {
        why += std::string(i == 0 ? ": " : "; ") + parser->getError(i)->desc();
    }
    throw twt::Failure{TWT_PARSE, why};
}

#if TWT_TIMING_CACHE
void read_timings(IBuilderConfig const &config, twt_bytes *out) {
    nvinfer1::ITimingCache const *cache = config.getTimingCache();
    if (out == nullptr || cache == nullptr) {
        return;
    }
    std::unique_ptr<nvinfer1::IHostMemory> memory(cache->serialize());
    if (memory != nullptr) {
        twt::hand_over(memory->data(), memory->size(), out);
    }
}
#endif

void build_plan(twt_library &library, twt_build const &build, twt_bytes *plan, twt_bytes *timings) {
    library.log.forget();
    std::unique_ptr<IBuilder> builder(
        static_cast<IBuilder *>(library.make_builder(&library.log, NV_TENSORRT_VERSION)));
    if (builder == nullptr) {
        throw library.log.failure(TWT_NO_BUILDER, "the library gives no builder");
    }
    std::unique_ptr<INetworkDefinition> network(builder->createNetworkV2(network_flags(build)));
    std::unique_ptr<IBuilderConfig> config(builder->createBuilderConfig());
    if (network == nullptr || config == nullptr) {
        throw library.log.failure(TWT_NO_BUILDER, "the builder gives no network");
    }
    Parser const parser = parse(library, *network, build);
    set_options(*config, build);
    set_precision(*config, build);
    set_targets(*config, build);
    set_profile(*builder, *config, build, library.log);
#if TWT_IMPLICIT_INT8
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    // Asked during the build, so it lives as long.
    std::unique_ptr<nvinfer1::IInt8Calibrator> const table = table_of(build);
    if (table != nullptr) {
        config->setInt8Calibrator(table.get());
    }
    if (build.dummy_range > 0.0F) {
        set_ranges(*network, build.dummy_range);
    }
#pragma GCC diagnostic pop
#endif
#if TWT_TIMING_CACHE
    // A cache of another version is refused with a logged error; the build then starts without one.
    std::unique_ptr<nvinfer1::ITimingCache> cache(
        config->createTimingCache(build.timing_cache, build.timing_cache_size));
    if (cache == nullptr) {
        cache.reset(config->createTimingCache(nullptr, 0));
    }
    if (cache != nullptr) {
        config->setTimingCache(*cache, false);
    }
#endif
#if TWT_PROGRESS
    Progress progress(build);
    if (build.progress != nullptr) {
        config->setProgressMonitor(&progress);
    }
#endif
    library.log.forget();
    std::unique_ptr<nvinfer1::IHostMemory> memory(builder->buildSerializedNetwork(*network, *config));
#if TWT_PROGRESS
    if (progress.stopped()) {
        throw twt::Failure{TWT_CANCELLED, "the build was stopped"};
    }
#endif
    if (memory == nullptr) {
        throw library.log.failure(TWT_BUILD, "no engine came of the build");
    }
#if TWT_TIMING_CACHE
    read_timings(*config, timings);
#else
    (void)timings;
#endif
    twt::hand_over(memory->data(), memory->size(), plan);
}

}  // namespace

extern "C" int32_t twt_build_plan(twt_library *library, const twt_build *build, twt_bytes *plan,
                                  twt_bytes *timing_cache, twt_error *error) {
    int32_t const code = twt::guarded(error, [&] {
        twt::require(library != nullptr && build != nullptr && plan != nullptr, "a null pointer");
        twt::require(build->model != nullptr || build->model_size == 0, "no model");
        *plan = twt_bytes{nullptr, 0};
        if (timing_cache != nullptr) {
            *timing_cache = twt_bytes{nullptr, 0};
        }
        build_plan(*library, *build, plan, timing_cache);
    });
    if (code != TWT_OK) {
        twt_bytes_free(timing_cache);
    }
    return code;
}
