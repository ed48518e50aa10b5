// Package rdmabench measures verbs as the programs of perftest do, and with their
// exchange: one end can be ib_write_bw, ib_read_bw, ib_send_bw, ib_read_lat or
// ib_send_lat. The client posts requests on one queue pair; the server only has the
// memory, and receives if they are messages.
package rdmabench
