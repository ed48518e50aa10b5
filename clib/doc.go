// Package clib holds the C libraries of Culvert: libcufile.so.0 and, for
// machines without a GPU, libcuda.so.1 and libcudart.so. It has no Go API.
//
//	include/            headers, written from the published interfaces
//	gen/                one table of functions; it writes the shims and the Go dispatch
//	shim/               the C libraries: generated forwarding, the way to the core, names of errors
//	core/               libculvert.so: the Go half, entered by all shims
//	internal/lease      what C may read without entering Go, and for how long
//	internal/dispatch   from a function's number and words to a method
//	internal/cufileapi  what libcufile answers, on package cufile
//	internal/softcuda   what libcuda answers, on the software GPU
//	internal/softrt     what libcudart answers, on softcuda
//	internal/pythonapi what the core answers to the Python package
//	programs/           C programs that use the libraries
//	differential/       our libcufile against NVIDIA's: the cases for C, and the judgement
//	cost/               what a read costs by the Go call, beside testdata/cost.c
//
// "make lib" builds the libraries into lib/. docs/drop-in.md tells how to use
// them with programs of others.
package clib
