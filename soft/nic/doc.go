// Package nic emulates network adapters on the fabric of the software machine. Their
// verbs are those of internal/verbs, with TCP as the wire; their memory accesses are DMA:
// a WRITE that arrives is moved from the socket into the pages behind the region's bus
// addresses, by [pcie.Function.AcquireAll], with all checks and counters of the fabric.
//
// Memory is registered as the RDMA core does it. An address is pinned as ordinary memory,
// or offered to the peer memory clients ([peermem.Core]), of which nvidia-peermem claims
// GPU memory; a dma-buf is attached. When GPU memory is freed, nvidia-peermem with free
// callbacks invalidates the registration: the key gives remote access errors, and DMA in
// flight has ended before the free returns.
//
// In sysfs an adapter is below class/infiniband, with port, GIDs and counters, and the
// peer memory clients are below kernel/mm/memory_peers.
package nic
