// Package nvme is a driver for NVMe drives in user space, whose DMA goes to
// host memory or straight to the memory of a GPU.
//
// A [Transport] is a way to one controller: through vfio, through the libnvm
// kernel module, or on a software machine. [Open] brings the controller up as
// the specification has it, and the driver maps memory for it ([Buffer]), cuts
// transfers into commands, and reads and writes namespaces:
//
//	c, err := nvme.Open(transport, nvme.Config{})
//	buf, err := c.AllocGPU(device, 1<<20) // or AllocHost
//	ns := c.Namespaces()[0]
//	err = ns.Read(ctx, buf, 0, 0, 2048)   // 2048 blocks from block 0
//
// # Queues
//
// Read and Write share a few queue pairs of the controller. Who wants many
// commands in flight without a goroutine for each takes a [Queue] of his own
// and submits a [Request] for each command, which allocates nothing.
//
// # Who owns the memory of a command
//
// From Submit until a request is done its memory is the controller's. A
// request is always done in the end, exactly once: by a completion; by a reset
// of the controller, when it does not answer within [Config.Timeout] even after
// an Abort, or reports a fatal error; or because the drive was removed. A
// cancelled context asks for an Abort, and still waits for one of these.
//
// # GPU memory
//
// Plain device memory can be mapped, in whole pages of 64 KiB. When it is freed
// while mapped its addresses are gone: commands that point there fail with
// [StatusDataTransferError], and closing the buffer says [ErrRevoked]. The
// controller's writes are visible to work that is launched on the GPU after the
// command was done; a kernel that is already running needs
// gpu.Device.FlushWrites.
//
// # Queues in GPU memory
//
// A [GPUQueue] is an experiment: the rings lie in GPU memory, and a kernel (in
// package gpu/kernels, culvert_nvme) writes commands and PRP lists, rings the
// doorbells through a mapping of BAR0 that the GPU was given, and polls for
// completions. The host creates the queues and launches the kernel; it writes
// no entry and sees none.
//
// On the software machine the kernel's Go half does that with the software
// controller, through the libnvm module's maps: the fabric counts no byte in
// host memory, neither of data nor of queues. The CUDA half makes the same
// commands and takes the same completions as the Go half, on a processor that
// emulates CUDA and, by the tests of package gpu/cuda, on a GPU; and where there
// is a GPU a test has it talk to the software controller through pinned memory
// (TestGPUQueueOnAnyGPU).
//
// Not shown is a real drive that hears a real GPU: that the GPU takes the
// registers of the drive (cuMemHostRegister with IOMEMORY), and that the machine
// lets the drive's requests through to the rings. One thread serves the queue,
// with commands of 64 KiB; for rates one would have many.
//
// # Lock order
//
// Controller.resetting, GPUQueue.mu, Controller.mu, Queue.mu. A Queue's token
// is held without any of them.
package nvme
