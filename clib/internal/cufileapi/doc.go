// Package cufileapi implements libcufile's C API on package cufile. It only
// converts handles, structs and error codes.
package cufileapi
