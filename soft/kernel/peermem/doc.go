// Package peermem emulates how a network adapter reaches memory of other devices:
// PeerDirect of MLNX_OFED's RDMA core, its client for NVIDIA GPUs (nvidia-peermem), and
// dma-buf. The adapters of soft/nic register memory through it.
//
// # PeerDirect
//
// A registration first tries to pin ordinary pages. Other memory is offered to the peer
// clients in the order of their registration. The first that claims it
// ([Client.Acquire]) pins it, maps it for the adapter and later undoes both, each once:
// [Core.Get]. In the older flow, [Core.GetKnown], a known context asks the peers first.
//
// A client that loses its memory invalidates: it names the registration by a ticket, the
// adapter destroys its key, the memory is unmapped. Tickets are assigned in turn, so that
// a late one matches nothing.
//
// Between Get and [Umem.Activate] the registration of such a client is locked: an
// invalidation waits until the adapter is ready. If a registration fails it is unlocked
// before the client puts its pages. (The original keeps the lock, and deadlocks if the
// GPU's free callback waits for it while put_pages waits for the callback.)
//
// # Sync points
//
// peermem.acquired, .got, .mapped; peermem.invalidate, .found, .notified;
// peermem.release, .stopped; peermem.unregister. The id is the registration's number.
package peermem
