// Package softrt is CUDA's runtime API on the software GPU: what the software
// machine's libcudart answers. It adds to package softcuda what only the runtime
// does: the first call initializes, each thread has a device and uses its primary
// context, and the last error is kept. The other functions of the runtime are
// those of the driver, by the table in clib/gen.
package softrt
