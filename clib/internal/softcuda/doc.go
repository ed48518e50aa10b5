// Package softcuda is CUDA's driver API on the software GPU: what the software
// machine's libcuda.so.1 answers. Each method of [Driver] is one C function,
// with C's arguments and rules: contexts that are current per thread, handles
// that are looked up, codes of CUDA for every mistake.
//
// Kernels run by the name of their PTX entry, if package gpu/kernels has a pair
// of that name. Streams for per-thread default streams are the legacy default
// stream, which orders more than is asked for.
package softcuda
