// The versions of TensorRT side by side: every `#if` on a version of the shim stands on a name from here.
#pragma once

#include <NvInfer.h>
#include <NvOnnxParser.h>

#if defined(TRT_MAJOR_RTX)
#define TWT_RTX 1
#else
#define TWT_RTX 0
#endif

#define TWT_HEADER (NV_TENSORRT_MAJOR * 10000 + NV_TENSORRT_MINOR * 100 + NV_TENSORRT_PATCH)

#if !TWT_RTX && TWT_HEADER < 80600
#error "TensorRT 8.6 or newer is needed"
#endif

// Networks are made without a flag for explicit batches since 10.
#define TWT_EXPLICIT_BATCH (!TWT_RTX && NV_TENSORRT_MAJOR < 10)
// The library knows no other way to fp16 and int8 than to switch them on for the whole network.
#define TWT_WEAK_TYPES (!TWT_RTX && NV_TENSORRT_MAJOR < 9)
// A network can be told to keep the model's types. From 11 and RTX 1.5 on it always does, and the flag is
// a leftover.
#if TWT_RTX
#define TWT_STRONG_ON_REQUEST (TWT_HEADER < 10500)
#else
#define TWT_STRONG_ON_REQUEST (NV_TENSORRT_MAJOR == 9 || NV_TENSORRT_MAJOR == 10)
#endif
// Two contexts may share a profile only on request; later versions always allow it.
#define TWT_SHARING_ON_REQUEST (!TWT_RTX && NV_TENSORRT_MAJOR < 10)
// Ranges of int8 can come from outside the model: a calibration table, or one range for everything.
#define TWT_IMPLICIT_INT8 (!TWT_RTX && NV_TENSORRT_MAJOR < 11)
#define TWT_PROGRESS (TWT_RTX || NV_TENSORRT_MAJOR >= 10)
// RTX times nothing when it builds; its run-time cache is another thing.
#define TWT_TIMING_CACHE (!TWT_RTX)
#define TWT_TARGETS TWT_RTX
#define TWT_MEMORY_SIZE_V2 (TWT_RTX || TWT_HEADER >= 100100)

namespace twt {

// What getInferLibVersion of the library of these headers gives: 8600 for 8.6.0, 100300 for 10.3.0.
constexpr int32_t header_version() { return static_cast<int32_t>(NV_TENSORRT_VERSION); }

}  // namespace twt
