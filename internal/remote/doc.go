// Package remote moves files between hosts straight into and out of GPU memory, as
// Mellanox's sample gpu_direct_rdma_access does with simulated storage: the server has
// the files, the client has registered memory. The client sends tasks over a stream
// connection; the server executes each with one-sided work requests of package rdma
// (WRITE into the client's memory to read a file, READ from it to write one) and
// answers when the data has arrived.
//
// Beyond the sample there are names, offsets of 64 bits, many tasks in flight, negative
// answers with a reason, authentication, checksums, and tasks that are repeated after a
// lost connection. Neither end trusts the other: a server checks every name, handle and
// length, and a client gives access to one registered range only.
package remote
