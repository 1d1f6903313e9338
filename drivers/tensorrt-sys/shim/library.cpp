// Finds the library, and makes sure that it is the one that the headers describe.
#include "common.hpp"

#include <dlfcn.h>

namespace {

#define TWT_TEXT_OF(number) #number
#define TWT_TEXT(number) TWT_TEXT_OF(number)
#if TWT_RTX
char const *const LIBRARY = "libtensorrt_rtx.so." TWT_TEXT(TRT_MAJOR_RTX);
char const *const PARSER = "libtensorrt_onnxparser_rtx.so." TWT_TEXT(TRT_MAJOR_RTX);
#else
#if defined(TRT_MAJOR_ENTERPRISE)
#define TWT_SONAME TRT_MAJOR_ENTERPRISE
#else
#define TWT_SONAME NV_TENSORRT_MAJOR
#endif
char const *const LIBRARY = "libnvinfer.so." TWT_TEXT(TWT_SONAME);
char const *const PARSER = "libnvonnxparser.so." TWT_TEXT(TWT_SONAME);
#endif

// Never unloaded: TensorRT and CUDA keep threads and exit handlers that would run into nothing.
void *load(char const *name) {
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        char const *why = dlerror();
        throw twt::Failure{TWT_NO_LIBRARY, std::string(name) + " cannot be loaded: " +
                                               (why != nullptr ? why : "no reason is given")};
    }
    return handle;
}

template <typename Function>
Function find(void *handle, char const *library, char const *symbol) {
    void *found = dlsym(handle, symbol);
    if (found == nullptr) {
        throw twt::Failure{TWT_NO_SYMBOL, std::string(library) + " has no symbol " + symbol};
    }
    Function function;
    static_assert(sizeof function == sizeof found, "a function's address");
    std::memcpy(&function, &found, sizeof function);
    return function;
}

struct Version {
    int32_t major;
    int32_t minor;
    int32_t patch;

    std::string text() const {
        return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
    }
};

// 8603 is 8.6.3, 100300 is 10.3.0, 10701 of RTX is 1.7.1.
Version split(int32_t number) {
    int32_t const unit = !TWT_RTX && number < 10000 ? 1000 : 10000;
    return Version{number / unit, number % unit / 100, number % 100};
}

// The classes of the headers are tables of functions. Within a major version they only grow, so a
// library of the same or a later minor version fits; RTX changes them with every minor version.
void compare(int32_t library) {
    Version const ours = split(twt::header_version());
    Version const theirs = split(library);
    bool const fits = ours.major == theirs.major &&
                      (TWT_RTX ? ours.minor == theirs.minor : ours.minor <= theirs.minor);
    if (!fits) {
        throw twt::Failure{TWT_VERSION, "the program was built for TensorRT" +
                                            std::string(TWT_RTX ? "-RTX " : " ") + ours.text() +
                                            ", the library is " + theirs.text()};
    }
}

}  // namespace

twt_library::ParserMaker twt_library::parser() {
    if (make_parser_ == nullptr) {
        void *handle = load(parser_name.c_str());
        make_parser_ =
            find<ParserMaker>(handle, parser_name.c_str(), "createNvOnnxParser_INTERNAL");
        parser_version_ =
            find<int32_t (*)()>(handle, parser_name.c_str(), "getNvOnnxParserVersion");
    }
    return make_parser_;
}

int32_t twt_library::parser_version() {
    parser();
    return parser_version_();
}

extern "C" {

void twt_header_version(twt_versions *out) {
    *out = twt_versions{twt::header_version(), 0,           TWT_RTX,          TWT_PROGRESS,
                        TWT_TIMING_CACHE,      TWT_TARGETS, TWT_IMPLICIT_INT8};
}

const char *twt_default_library(void) { return LIBRARY; }

const char *twt_default_parser(void) { return PARSER; }

int32_t twt_open(const char *library, const char *parser, twt_log_fn log, void *user,
                 twt_library **out, twt_versions *versions, twt_error *error) {
    return twt::guarded(error, [&] {
        twt::require(out != nullptr && versions != nullptr, "nowhere to put the library");
        *out = nullptr;
        twt_header_version(versions);
        char const *name = library != nullptr ? library : LIBRARY;
        void *handle = load(name);
        auto version = find<int32_t (*)()>(handle, name, "getInferLibVersion");
        versions->library = version();
        compare(versions->library);
        std::unique_ptr<twt_library> made(new twt_library(log, user));
        made->parser_name = parser != nullptr ? parser : PARSER;
        made->make_builder =
            find<void *(*)(void *, int32_t)>(handle, name, "createInferBuilder_INTERNAL");
        made->make_runtime =
            find<void *(*)(void *, int32_t)>(handle, name, "createInferRuntime_INTERNAL");
        *out = made.release();
    });
}

int32_t twt_parser_version(twt_library *library, int32_t *version, twt_error *error) {
    return twt::guarded(error, [&] {
        twt::require(library != nullptr && version != nullptr, "a null pointer");
        *version = library->parser_version();
    });
}

void twt_close(twt_library *library) { delete library; }

void twt_bytes_free(twt_bytes *bytes) {
    if (bytes != nullptr) {
        std::free(bytes->data);
        *bytes = twt_bytes{nullptr, 0};
    }
}

}  // extern "C"
