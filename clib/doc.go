// Package clib contains the C libraries of Culvert: libcufile.so.0, libgdrapi.so.2 and, for machines
// without a GPU or network adapter, libcuda.so.1, libcudart.so, libibverbs.so.1 and
// libculvert-dev.so. It has no Go API.
//
//	include/            headers, written from the published interfaces
//	gen/                the table of all functions; writes the shims and the Go entries
//	shim/               the C libraries: generated calls, loading of the Go core, leases
//	core/               libculvert.so, the Go core that all shims call
//	internal/dispatch   from the number and words of a function to a Go method
//	internal/cufileapi  libcufile on package cufile
//	internal/softcuda   libcuda on the software GPU
//	internal/softrt     libcudart on softcuda
//	internal/verbsapi   libibverbs on the software network adapter
//	internal/devapi     the software machine's device nodes, for libculvert-dev.so
//	internal/gdrapi     GDRCopy's library on package gdrcopy
//	internal/pythonapi  the functions of the Go core for the Python package
//	internal/lease      leases: small reads that C does without entering Go
//	internal/logfile    the log file that cufile.json asks for
//	internal/handle     opaque pointers of C programs
//	internal/cmem       memory of C programs
//	programs/           C programs that use the libraries
//	differential/       comparison of our libcufile with NVIDIA's
//	cost/               time of a read with the Go API, to compare with testdata/cost.c
//
// "make lib" builds the libraries into lib/. docs/drop-in.md describes their use with
// existing programs.
//
// # A read
//
// Each step calls the next; none calls back up.
//
//	cuFileRead             shim/cufile.c: packs the arguments into words
//	culvert_file_call      shim/cufile_local.c: waits for the default stream, keeps the
//	                       caller's CUDA context
//	culvert_lease_read     shim/lease.c: with a lease, preads into GPU memory and is done
//	culvert_call           shim/gocore.c: loads the Go core in the first call, sets errno
//	call                   core/core.c: rejects forked children, keeps the thread's state
//	culvertCall            core/core.go: C to Go
//	dispatch.Core.Call     turns the results into a C value and errno
//	dispatch.Core.guarded  checks for NULL, turns panics and faults into codes
//	cufileapi.API.Read     looks the handle up
//	cufile.File.ReadAt     chooses the route and moves the data: a batch of one
//
// cuFileReadv ends in cufile.File.ReadvAt, cuFileReadAsync in cufile.File.ReadAsync, and
// the entries of cuFileBatchIOSubmit run in groups by cufile.Driver.Do.
//
// # A call of the software CUDA
//
// cudaStreamQuery, for example. A function of the runtime that does the same as one of
// the driver is answered by the driver's method.
//
//	cudaStreamQuery              shim/cudart.c
//	culvert_call, call           as above
//	dispatch.Core.guarded        looks up what the table says that the function needs:
//	softrt.Runtime.Prepare       makes the primary context of the thread's device current
//	softcuda.Driver.Prepare      looks the stream up
//	softcuda.Driver.StreamQuery  asks the software GPU
package clib
