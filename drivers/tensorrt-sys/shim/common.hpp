// What every part of the shim needs: errors, bytes, callbacks, and the guard against exceptions.
#pragma once

#include "tensorwire_trt.h"
#include "version.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>

namespace twt {

// A failure on its way to the C interface; never leaves `guarded`.
struct Failure {
    int32_t code;
    std::string text;
};

inline int32_t write_error(twt_error *error, int32_t code, char const *text) noexcept {
    if (error != nullptr) {
        error->code = code;
        std::snprintf(error->text, sizeof error->text, "%s", text);
    }
    return code;
}

// Runs the body of a C function: whatever it throws becomes a code and a sentence.
template <typename Body>
int32_t guarded(twt_error *error, Body body) noexcept {
    try {
        body();
        return TWT_OK;
    } catch (Failure const &failure) {
        return write_error(error, failure.code, failure.text.c_str());
    } catch (std::bad_alloc const &) {
        return write_error(error, TWT_MEMORY, "no memory is left on the host");
    } catch (std::exception const &exception) {
        return write_error(error, TWT_EXCEPTION, exception.what());
    } catch (...) {
        return write_error(error, TWT_EXCEPTION, "an exception of an unknown kind");
    }
}

// Passes messages on and keeps the last error, so that a failure can say why. TensorRT logs from
// threads of its own, hence the lock.
class Log final : public nvinfer1::ILogger {
public:
    Log(twt_log_fn fn, void *user) : fn_(fn), user_(user) {}

    void log(Severity severity, nvinfer1::AsciiChar const *message) noexcept override {
        if (message == nullptr) {
            return;
        }
        if (severity <= Severity::kERROR) {
            std::lock_guard<std::mutex> held(mutex_);
            std::snprintf(last_, sizeof last_, "%s", message);
        }
        if (fn_ != nullptr) {
            fn_(user_, static_cast<int32_t>(severity), message);
        }
    }

    void forget() {
        std::lock_guard<std::mutex> held(mutex_);
        last_[0] = '\0';
    }

    // `what`, and what the library last complained of.
    Failure failure(int32_t code, std::string what) {
        std::lock_guard<std::mutex> held(mutex_);
        if (last_[0] != '\0') {
            what += ": ";
            what += last_;
        }
        return Failure{code, what};
    }

private:
    twt_log_fn fn_;
    void *user_;
    std::mutex mutex_;
    char last_[512] = "";
};

// Bytes for the caller, who frees them.
inline void hand_over(void const *data, size_t size, twt_bytes *out) {
    void *copy = std::malloc(size > 0 ? size : 1);
    if (copy == nullptr) {
        throw std::bad_alloc();
    }
    std::memcpy(copy, data, size);
    out->data = copy;
    out->size = size;
}

inline void require(bool fits, char const *what) {
    if (!fits) {
        throw Failure{TWT_ARGUMENT, what};
    }
}

inline nvinfer1::Dims dims_of(int64_t const *shape, int32_t dims) {
    static_assert(nvinfer1::Dims::MAX_DIMS == TWT_MAX_DIMS, "dimensions of a tensor");
    require(shape != nullptr && dims >= 0 && dims <= TWT_MAX_DIMS, "more dimensions than a tensor has");
    nvinfer1::Dims out{};
    out.nbDims = dims;
    for (int32_t i = 0; i < dims; ++i) {
        out.d[i] = static_cast<decltype(out.d[0] + 0)>(shape[i]);
        require(out.d[i] == shape[i], "a dimension is larger than this version counts");
    }
    return out;
}

}  // namespace twt

struct twt_library {
    twt_library(twt_log_fn fn, void *user) : log(fn, user) {}

    twt::Log log;
    std::string parser_name;
    void *(*make_builder)(void *, int32_t) = nullptr;
    void *(*make_runtime)(void *, int32_t) = nullptr;

    // The maker of parsers; loads the library of the parser at its first call.
    using ParserMaker = void *(*)(void *, void *, int);
    ParserMaker parser();
    // What the parser's library says of itself.
    int32_t parser_version();

private:
    ParserMaker make_parser_ = nullptr;
    int32_t (*parser_version_)() = nullptr;
};
