/* What the generated cudart.c needs. CULVERT_CUDART is the major version of
 * the library being built. */
#include "../include/cuda_runtime.h"
#include "gocore.h"
