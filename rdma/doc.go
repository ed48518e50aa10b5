// Package rdma is remote direct memory access as verbs define it: devices, protection
// domains, memory regions, completion queues, reliable connected queue pairs and work
// requests. Numbers and names are those of libibverbs, so that a completion code means
// the same over every provider.
//
// A [Provider] has devices. rdma/ibverbs finds network adapters, rdma/tcp moves the bytes
// over TCP, and soft/nic is the adapter of the software machine. A provider is never
// chosen silently: the caller opens the one that it wants, and reports its name.
//
// # Life of a queue pair
//
//	pd, err := dev.AllocPD()
//	cq, err := dev.CreateCQ(128)
//	qp, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq})
//	mr, err := pd.Register(rdma.Host(buf), rdma.LocalWrite|rdma.RemoteWrite)
//	peer, err := rdma.Establish(ctx, conn, dev, qp, rdma.Options{Data: key})
//	err = rdma.Post(qp, rdma.SendWR{ID: 1, Op: rdma.OpWrite, Flags: rdma.Signaled, …})
//	err = rdma.Await(ctx, cq, wcs[:])
//
// Every posted request completes once: with its own status, or with [FlushErr] after the
// queue pair failed. Requests without [Signaled] complete silently unless they fail. The
// memory of a request belongs to the device from the post to the completion.
package rdma
