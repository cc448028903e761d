// The row kernels compiled for the least that every machine has.
#define HEADRACE_ROW_FUNCTIONS row_functions_baseline
#define HEADRACE_LANES 4
#include "kernels/host/row_kernels_body.h"
