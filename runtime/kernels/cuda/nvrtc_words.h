// What CUDA's run-time compiler has by other names. Comes before everything else (--pre-include) in
// the texts that it reads; tests/support/cuda_on_host.h is its twin.
#pragma once

#define __builtin_acos acos
#define __builtin_acosf acosf
#define __builtin_acosh acosh
#define __builtin_acoshf acoshf
#define __builtin_asin asin
#define __builtin_asinf asinf
#define __builtin_asinh asinh
#define __builtin_asinhf asinhf
#define __builtin_atan atan
#define __builtin_atanf atanf
#define __builtin_atanh atanh
#define __builtin_atanhf atanhf
#define __builtin_ceil ceil
#define __builtin_ceilf ceilf
#define __builtin_cos cos
#define __builtin_cosf cosf
#define __builtin_cosh cosh
#define __builtin_coshf coshf
#define __builtin_erf erf
#define __builtin_exp exp
#define __builtin_expm1 expm1
#define __builtin_fabs fabs
#define __builtin_fabsf fabsf
#define __builtin_floor floor
#define __builtin_floorf floorf
#define __builtin_fmaf fmaf
#define __builtin_fmod fmod
#define __builtin_fmodf fmodf
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_log log
#define __builtin_log1p log1p
#define __builtin_nanf(text) __int_as_float(0x7fc00000)
#define __builtin_pow pow
#define __builtin_powf powf
#define __builtin_rint rint
#define __builtin_rintf rintf
#define __builtin_sin sin
#define __builtin_sinf sinf
#define __builtin_sinh sinh
#define __builtin_sinhf sinhf
#define __builtin_sqrt sqrt
#define __builtin_sqrtf sqrtf
#define __builtin_tan tan
#define __builtin_tanf tanf
#define __builtin_tanh tanh
#define __builtin_trunc trunc
#define __builtin_truncf truncf

#include "runtime/kernels/cuda/instructions_on_card.h"
