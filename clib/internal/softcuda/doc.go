// Package softcuda is CUDA's driver API on the software GPU: what the software
// machine's libcuda.so.1 answers. Each method of [Driver] is one C function,
// with C's arguments and rules: contexts that are current per thread, handles
// that are looked up, CUDA's codes for every error. What a function needs first,
// a context or a valid stream, the table in clib/gen says and [Driver.Prepare]
// looks up.
//
// A kernel runs if package gpu/kernels has a Go function of the name of its PTX
// entry. Per-thread default streams are the legacy default stream, which orders
// more than they require.
package softcuda
