// Package ibverbs is verbs on network adapters: InfiniBand, RoCE, and Linux's software
// RoCE (rxe). It loads libibverbs.so.1 at run time, without cgo; the adapter's own part of
// it comes with rdma-core (Debian: ibverbs-providers).
//
// The verbs of the fast path have no symbols in the library. They are called through the
// function pointers of struct ibv_context, as the inline functions of the C header do.
//
// # Memory
//
// Register takes host memory that the garbage collector does not manage, a dma-buf
// (ibv_reg_dmabuf_mr), or the address of GPU memory, which a peer memory client such as
// nvidia-peermem must claim. [rdma.RegisterGPU] tries both for GPU memory.
package ibverbs
