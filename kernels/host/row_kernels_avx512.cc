// The row kernels compiled for AVX-512; this file alone is compiled with that flag.
#define HEADRACE_ROW_FUNCTIONS row_functions_avx512
#define HEADRACE_LANES 16
#include "kernels/host/row_kernels_body.h"
