// Package cuda has the numbers and names of the CUDA driver API (cuda.h) and
// runtime API (driver_types.h) that Culvert uses: result codes and device
// attributes. It is shared by the client (gpu/cuda), the software GPU
// (soft/gpu) and the generated C libraries (clib).
package cuda
