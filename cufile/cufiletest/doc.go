// Package cufiletest is one suite for all implementations of cuFile's
// synchronous half: several hundred cases as data. Each case is a file, memory
// and a few calls; a model of both says what the calls must leave behind, down
// to the last byte around the buffers.
//
// [Run] plays the cases on a machine, real or software, by an [Engine]: Culvert,
// by the ladder's own choice or with one route forced, or NVIDIA's libcufile.
// Outcomes can be recorded as JSON. Recordings of NVIDIA's library made on
// hardware are kept in testdata, and a test compares Culvert on the software
// machine with them; what differs on purpose is listed with the reason.
//
// # On hardware
//
//	CGO_ENABLED=0 go test -c -o cufiletest.test ./cufile/cufiletest
//	./cufiletest.test -test.run 'TestSuite$' -cufiletest.machine=real -cufiletest.record=culvert.json
//	./cufiletest.test -test.run TestVendor -cufiletest.machine=real -cufiletest.engine=vendor \
//	        -cufiletest.libcufile=/usr/local/cuda/lib64/libcufile.so.0 -cufiletest.record=vendor.json
//
// NVIDIA's library wants a udev record for the disk under the temporary
// directory. Cases that end the process are recorded as such and the rest goes
// on in a new one.
//
// # What is not here
//
// Null handles and handle types other than descriptors cannot be expressed in
// Go; the tests of the C library have them.
package cufiletest
