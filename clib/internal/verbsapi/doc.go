// Package verbsapi is libibverbs on the network adapters of the software machine: what
// its libibverbs.so.1 asks of the Go core. The C half (shim/ibv_*.c) has the structs
// that programs see, with their tables of functions; each has the ID of an object here.
//
// Methods return errors with an errno ([Errno]). Layouts are those of
// include/infiniband/verbs.h.
package verbsapi
