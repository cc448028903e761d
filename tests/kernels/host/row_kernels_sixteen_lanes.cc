// The row kernels' source in the shape of AVX-512, 16 lanes a vector, compiled for what every
// machine has: it is tested where the machine lacks those instructions.
#include "kernels/host/row_operands.h"

namespace headrace::kernels {
extern const RowFunctions row_functions_sixteen_lanes;
}

#define HEADRACE_ROW_FUNCTIONS row_functions_sixteen_lanes
#define HEADRACE_LANES 16
#include "kernels/host/row_kernels_body.h"
