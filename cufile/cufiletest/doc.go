// Package cufiletest is one suite for all implementations of cuFile's
// synchronous half: several hundred cases as data. Each case is a file, memory
// and a few calls; a model of both says what the calls must leave behind, down
// to the last byte around the buffers.
//
// [Run] plays the cases on a machine, real or software, by an [Engine]: Culvert, by the
// ladder's own choice or with one route forced, or the C library. NVIDIA's library is
// compared in clib: a C program plays the same cases there, and its recordings are kept.
//
// # On hardware
//
//	CGO_ENABLED=0 go test -c -o cufiletest.test ./cufile/cufiletest
//	./cufiletest.test -test.run 'TestSuite$' -cufiletest.machine=real
//
// # What is not here
//
// Null handles and handle types other than descriptors cannot be expressed in
// Go; the tests of the C library have them.
package cufiletest
