// The row kernels compiled for AVX2; this file alone is compiled with that flag.
#define HEADRACE_ROW_FUNCTIONS row_functions_avx2
#define HEADRACE_LANES 8
#include "kernels/host/row_kernels_body.h"
