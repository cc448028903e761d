// The natural logarithm of the losses and of attention's log-sum-exp, the same bits on every
// machine: a C library's changes with its version, which no numerics record names.
#pragma once

namespace headrace::kernels {

// ln x for a normal positive x, within 2 ulp; rounded to fp32 it is nearly always the nearest
// value. 0: minus infinity; infinity and NaN: themselves; negative: NaN.
double natural_log(double x);

}  // namespace headrace::kernels
