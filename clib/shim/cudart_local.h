/* What the generated cudart.c needs. CULVERT_CUDART is the major version of
 * the library being built. */
#include "../include/cuda_runtime.h"
#include "gocore.h"

/* culvert_refuse returns the code and keeps it for cudaGetLastError: programs check
 * that after a launch, not the launch itself. */
cudaError_t culvert_refuse(int code);
