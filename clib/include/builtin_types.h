/* Programs include this header of CUDA's for types that cuda_runtime.h has here. */
#include "cuda_runtime.h"
