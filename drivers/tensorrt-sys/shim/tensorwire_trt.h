/* What TensorRT does for tensorwire, as C functions. One source for TensorRT 8.6, 10, 11 and
 * TensorRT-RTX: what a version lacks is said by TWT_UNSUPPORTED, never left out in silence.
 *
 * Every function that can fail returns a code of `twt_code` and writes a sentence to `error`. No C++
 * exception leaves the shim. The library itself is not linked: `twt_open` loads it by name.
 *
 * Mirrored by src/ffi.rs; sizes and offsets are asserted on both sides.
 */
#ifndef TENSORWIRE_TRT_H
#define TENSORWIRE_TRT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum twt_code {
    TWT_OK = 0,
    TWT_NO_LIBRARY = 1,  /* not found, or it does not load */
    TWT_NO_SYMBOL = 2,   /* loaded, and it is not TensorRT */
    TWT_VERSION = 3,     /* header and library do not belong together */
    TWT_NO_BUILDER = 4,  /* the library gives no builder or runtime, as without a GPU */
    TWT_PARSE = 5,       /* the parser refuses the model */
    TWT_CONFIG = 6,      /* an option is refused */
    TWT_BUILD = 7,       /* no engine came of it */
    TWT_CANCELLED = 8,   /* the progress callback asked to stop */
    TWT_LOAD = 9,        /* the plan is refused */
    TWT_CONTEXT = 10,    /* no execution context */
    TWT_SHAPE = 11,      /* an input shape is refused */
    TWT_ADDRESS = 12,    /* an address is refused */
    TWT_ENQUEUE = 13,    /* the inference could not be enqueued */
    TWT_INSPECT = 14,    /* the inspector gives nothing */
    TWT_UNSUPPORTED = 15, /* this version cannot do it */
    TWT_ARGUMENT = 16,   /* the caller broke the contract of the shim */
    TWT_MEMORY = 17,     /* no memory on the host */
    TWT_EXCEPTION = 18   /* a C++ exception, with its text */
};

enum twt_precision {
    TWT_FP32 = 0, /* TF32 is off */
    TWT_FP16 = 1, /* strongly typed where the version knows it, else the model's types and fp16 */
    TWT_INT8 = 2  /* by the Q/DQ nodes of the model, the rest as TWT_FP16 */
};

/* Which of the library's calibrators a table is of; by the first line of the table. */
enum twt_table {
    TWT_TABLE_NONE = 0,
    TWT_TABLE_ENTROPY = 1, /* EntropyCalibration2 */
    TWT_TABLE_MIN_MAX = 2  /* MinMaxCalibration */
};

#define TWT_MAX_DIMS 8
#define TWT_ERROR_BYTES 1024

typedef struct twt_error {
    int32_t code;
    char text[TWT_ERROR_BYTES]; /* ends with 0 */
} twt_error;

/* Bytes of the shim; `twt_bytes_free` gives them back. */
typedef struct twt_bytes {
    void *data;
    size_t size;
} twt_bytes;

typedef struct twt_versions {
    int32_t header;  /* as the library of these headers would give it */
    int32_t library; /* as it gives it */
    int32_t is_rtx;
    int32_t has_progress; /* build progress is reported, and can be stopped */
    int32_t has_timing_cache;
    int32_t has_targets; /* compute capabilities can be named, without a GPU */
    int32_t has_implicit_int8; /* ranges of int8 can come from outside the model */
} twt_versions;

/* severity: 0 internal error, 1 error, 2 warning, 3 info, 4 verbose. A logged error is no failure. It may
 * be called from any thread of the library, and must return. */
typedef void (*twt_log_fn)(void *user, int32_t severity, const char *message);
/* 0 stops the build. `step` of `steps`; both 0 where the phase tells no number. */
typedef int32_t (*twt_progress_fn)(void *user, const char *phase, int32_t step, int32_t steps);
typedef void (*twt_layer_fn)(void *user, const char *layer, float milliseconds);

typedef struct twt_library twt_library;
typedef struct twt_engine twt_engine;
typedef struct twt_context twt_context;

typedef struct twt_build {
    const void *model; /* ONNX, weights included */
    size_t model_size;
    uint64_t workspace_bytes; /* 0: the library's own limit */
    const char *input;        /* input with a profile; NULL: the model fixes its shapes */
    int64_t min[TWT_MAX_DIMS];
    int64_t opt[TWT_MAX_DIMS];
    int64_t max[TWT_MAX_DIMS];
    int32_t dims;
    int32_t precision; /* twt_precision */
    int32_t detailed;  /* layers keep their names and tactics for the inspector */
    int32_t optimization_level; /* negative: the library's own */
    const int32_t *targets;     /* compute capabilities, major × 10 + minor */
    size_t nb_targets;          /* 0: the GPU of this machine */
    const void *timing_cache;   /* NULL: an empty one */
    size_t timing_cache_size;
    twt_progress_fn progress; /* NULL: none; must return */
    void *progress_user;
    /* int8 without Q/DQ nodes; TWT_UNSUPPORTED where the version takes it from the model alone. */
    const void *table;
    size_t table_size;
    int32_t table_kind; /* twt_table */
    float dummy_range;  /* above 0: every value has this range, for timings only */
} twt_build;

typedef struct twt_tensor {
    const char *name; /* as long as the engine lives */
    int64_t shape[TWT_MAX_DIMS]; /* -1: open */
    int64_t min[TWT_MAX_DIMS];   /* of profile 0, for an input */
    int64_t opt[TWT_MAX_DIMS];
    int64_t max[TWT_MAX_DIMS];
    int32_t dims;
    int32_t is_input;
    int32_t type;        /* nvinfer1::DataType: 0 fp32, 1 fp16, 2 int8, 3 int32, … */
    int32_t has_profile; /* min, opt and max are given */
} twt_tensor;

/* The version of the headers that the shim was compiled against; needs no library. */
void twt_header_version(twt_versions *out);

/* The names under which the library and its ONNX parser are looked for when none is given. */
const char *twt_default_library(void);
const char *twt_default_parser(void);

/* Loads the library and compares versions before it calls anything else of it. NULL = default names.
 * The parser is loaded at the first build. `log` (may be NULL) is called until `twt_close`. */
int32_t twt_open(const char *library, const char *parser, twt_log_fn log, void *user,
                 twt_library **out, twt_versions *versions, twt_error *error);
/* After every engine of it is freed. The shared objects stay loaded: they keep threads and handlers. */
void twt_close(twt_library *library);

int32_t twt_build_plan(twt_library *library, const twt_build *build, twt_bytes *plan,
                       twt_bytes *timing_cache, twt_error *error);
void twt_bytes_free(twt_bytes *bytes);
/* Version of the ONNX parser's interface; loads the parser. */
int32_t twt_parser_version(twt_library *library, int32_t *version, twt_error *error);

int32_t twt_load(twt_library *library, const void *plan, size_t size, twt_engine **out,
                 twt_error *error);
/* After every context of it is freed. */
void twt_engine_free(twt_engine *engine);
int32_t twt_engine_tensors(const twt_engine *engine);
int32_t twt_engine_tensor(const twt_engine *engine, int32_t index, twt_tensor *out, twt_error *error);
/* Scratch memory of one context, in bytes. */
int64_t twt_engine_device_memory(const twt_engine *engine);
/* Layers as JSON; names and tactics only if the engine was built detailed. */
int32_t twt_engine_inspect(const twt_engine *engine, twt_bytes *json, twt_error *error);

/* A context may be used by one thread at a time. */
int32_t twt_context_new(twt_engine *engine, twt_context **out, twt_error *error);
void twt_context_free(twt_context *context);
int32_t twt_context_shape(twt_context *context, const char *input, const int64_t *shape, int32_t dims,
                          twt_error *error);
int32_t twt_context_address(twt_context *context, const char *tensor, uint64_t address,
                            twt_error *error);
int32_t twt_context_enqueue(twt_context *context, void *stream, twt_error *error);
/* Not 0: the library waits after each layer, and logs the one that failed. */
void twt_context_debug_sync(twt_context *context, int32_t on);
/* `layer` is called for every layer when an inference is done; NULL: off. It must return. */
void twt_context_profiler(twt_context *context, twt_layer_fn layer, void *user);

#ifdef __cplusplus
}
#endif
#endif
