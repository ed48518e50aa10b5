// Package rdmabench measures verbs as the programs of perftest do, and with their
// exchange: one end can be ib_write_bw or ib_read_bw. The client posts requests on one
// queue pair; the server only has the memory.
package rdmabench
