// Command gen writes the C shims of libcufile, libcuda and libcudart and the Go
// code that answers them, from one table, so that shim and Go core
// cannot disagree about a name, a number or an argument.
//
//	go run ./clib/gen
//
// The generated files are committed: building the libraries needs a compiler
// and Go, not this program. A test fails when they are stale.
package main
