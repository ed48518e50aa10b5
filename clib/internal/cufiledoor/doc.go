// Package cufiledoor is what libcufile.so.0 answers: package cufile with C's
// arguments, C's structs and C's way to report errors. Handles are looked up,
// structs are read and written field by field, and nothing else happens here.
package cufiledoor
