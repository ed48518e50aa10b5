// Package cm connects queue pairs by the kernel's connection manager of RDMA, as
// librdmacm does: peers find each other by IP address and port, and exchange private data
// with the request and the answer. Kernel services such as the NVMe target speak it.
//
// It talks to /dev/infiniband/rdma_cm and needs no library. The queue pair must be one of
// rdma/ibverbs, on the device through which the address is reached.
package cm
