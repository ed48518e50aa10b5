// Package peermem is how a network adapter gets at the memory of other devices,
// in software: PeerDirect, as the kernel's RDMA core of MLNX_OFED has it; the
// client that speaks for NVIDIA GPUs (nvidia-peermem); and dma-buf, which came
// after it.
//
// # PeerDirect
//
// A registration of memory first tries to pin it as ordinary pages. What is not
// ordinary is offered to peer clients, in the order in which they registered:
// the first that says "mine" ([Client.Acquire]) pins it, maps it for the
// adapter, and is asked to let go again, each step once. [Core.Get] is that
// flow. [Core.GetKnown] is the older one, in which a context that is known to
// belong to a peer goes to the peers first.
//
// A client that may lose its memory invalidates: it names the registration by a
// ticket, the adapter destroys its key, the memory is unmapped. Tickets are
// handed out in turn, so one that comes too late finds nobody.
//
// Between Get and [Umem.Activate] the registration of such a client is locked:
// an invalidation waits until the adapter is ready for it. Where registration
// fails the lock is dropped before the client puts its pages. (The original
// holds it, and deadlocks when the GPU's free callback waits for it while
// put_pages waits for the callback.)
//
// # Sync points
//
// peermem.acquired, .got, .mapped; peermem.invalidate, .found, .notified;
// peermem.release, .stopped; peermem.unregister. The id is the registration's
// number.
package peermem
