// Package nvme is a user-space driver for NVMe drives, with DMA to host memory or
// directly to the memory of a GPU.
//
// A [Transport] gives access to one controller: through vfio, through the libnvm
// kernel module, or on a software machine. [Open] resets and enables the
// controller. The driver maps memory for it ([Buffer]), splits transfers into
// commands, and reads and writes namespaces:
//
//	c, err := nvme.Open(transport, nvme.Config{})
//	buf, err := c.AllocGPU(device, 1<<20) // or AllocHost
//	ns := c.Namespaces()[0]
//	err = ns.Read(ctx, buf, 0, 0, 2048)   // 2048 blocks from block 0
//
// # Queues
//
// Read and Write share a few queue pairs of the controller. To keep many
// commands in flight without a goroutine for each, make a [Queue] with NewQueue
// and submit a [Request] per command, which allocates nothing.
//
// # Memory of a command
//
// From Submit until a request is done, its memory belongs to the controller.
// Every request is done in the end, exactly once: by a completion; by a reset of
// the controller, after a fatal error or when a command is not completed within
// [Config.Timeout] even after an Abort; or because the drive was removed. If its
// context is cancelled, a command is aborted, but still ends in one of these
// ways.
//
// # GPU memory
//
// Device memory can be mapped in pages of 64 KiB. If it is freed while mapped,
// its bus addresses become invalid: commands that use them fail with
// [StatusDataTransferError], and closing the buffer returns [ErrRevoked]. Work
// launched on the GPU after a command is done sees the data. A kernel that is
// already running needs gpu.Device.FlushWrites.
//
// # Queues in GPU memory
//
// A [GPUQueue] is an experiment. Its rings are in GPU memory. A kernel (package
// gpu/kernels, culvert_nvme) writes commands and PRP lists, writes the doorbells
// through a mapping of BAR0 that is registered with the GPU, and polls for
// completions. The host only creates the queues and launches the kernel.
//
// On the software machine the Go version of the kernel does this with the
// software controller, and no byte of data or queues goes through host memory.
// The CUDA version is compared with the Go version on a CPU (gpu/kernels) and on
// a GPU (gpu/cuda); TestGPUQueueOnAnyGPU runs it on a GPU against the software
// controller, in pinned memory.
//
// Not tested is a real drive with a real GPU: whether the GPU accepts the
// drive's registers (cuMemHostRegister with IOMEMORY), and whether the drive can
// reach the rings. One thread serves the queue, with commands of 64 KiB; for
// high rates it would need many.
//
// # Lock order
//
// Controller.resetting, GPUQueue.mu, Controller.mu, Queue.mu. A goroutine that
// has a Queue's token takes none of them before it returns the token.
package nvme
