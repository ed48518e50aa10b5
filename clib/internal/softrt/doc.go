// Package softrt is CUDA's runtime API on the software GPU: what the software
// machine's libcudart answers. It is the driver API of package softcuda with
// the runtime's habits: the first call initialises, each thread has a device
// and with it that device's primary context, and the last error is remembered.
package softrt
