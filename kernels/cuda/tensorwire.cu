// Entry points, found by name by who loads the compiled module; `abi.h` says what they take.
//
//   tw_copy                                    bytes as they are
//   tw_reorder_IN_OUT                          IN = int4 int8 int16 int32, OUT = fp16 bf16 fp32 fp64 int32
//   tw_copy_seq, tw_reorder_IN_OUT_seq         the same with the slot from the packet's header
//   tw_reorder_IN_OUT_affine                   y = x·a_c + b_c per channel, one rounding; OUT = fp16 bf16 fp32
//   tw_reorder_IN_OUT_nhwc, _affine_nhwc       the batch in NHWC; OUT = fp16 bf16 fp32
//   tw_zero_missing, tw_zero_missing_nhwc      zeros where no packet came
//   tw_gather_headers                          headers of packets that the CPU cannot read
#include "abi.h"
#include "gather.cuh"
#include "reorder.cuh"
#include "zero.cuh"

#define TW_KERNEL(name, Params, body)                                          \
    extern "C" __global__ void __launch_bounds__(256, 4)                      \
        name(const __grid_constant__ Params p) {                               \
        body;                                                                  \
    }

#define TW_PLAIN(in, In, out, Out)                                                                         \
    TW_KERNEL(tw_reorder_##in##_##out, TwReorder,                                                          \
              (tw::reorder<tw::In, tw::To::Out, false, false, false>(p)))                                  \
    TW_KERNEL(tw_reorder_##in##_##out##_seq, TwReorder,                                                    \
              (tw::reorder<tw::In, tw::To::Out, false, false, true>(p)))

#define TW_SWITCHES(in, In, out, Out)                                                                      \
    TW_KERNEL(tw_reorder_##in##_##out##_affine, TwReorder,                                                 \
              (tw::reorder<tw::In, tw::To::Out, true, false, false>(p)))                                          \
    TW_KERNEL(tw_reorder_##in##_##out##_nhwc, TwReorder,                                                   \
              (tw::reorder<tw::In, tw::To::Out, false, true, false>(p)))                                          \
    TW_KERNEL(tw_reorder_##in##_##out##_affine_nhwc, TwReorder,                                            \
              (tw::reorder<tw::In, tw::To::Out, true, true, false>(p)))

#define TW_INPUT(in, In)                \
    TW_PLAIN(in, In, fp16, Fp16)        \
    TW_PLAIN(in, In, bf16, Bf16)        \
    TW_PLAIN(in, In, fp32, Fp32)        \
    TW_PLAIN(in, In, fp64, Fp64)        \
    TW_PLAIN(in, In, int32, Int32)      \
    TW_SWITCHES(in, In, fp16, Fp16)     \
    TW_SWITCHES(in, In, bf16, Bf16)     \
    TW_SWITCHES(in, In, fp32, Fp32)

TW_INPUT(int4, Int4)
TW_INPUT(int8, Int8)
TW_INPUT(int16, Int16)
TW_INPUT(int32, Int32)
TW_KERNEL(tw_copy, TwReorder, (tw::reorder<tw::Bytes, tw::To::Bytes, false, false, false>(p)))
TW_KERNEL(tw_copy_seq, TwReorder, (tw::reorder<tw::Bytes, tw::To::Bytes, false, false, true>(p)))

TW_KERNEL(tw_zero_missing, TwZero, (tw::zero_missing<false>(p)))
TW_KERNEL(tw_zero_missing_nhwc, TwZero, (tw::zero_missing<true>(p)))
TW_KERNEL(tw_gather_headers, TwGather, (tw::gather_headers(p)))
