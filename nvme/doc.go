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
// # Lock order
//
// Controller.resetting, Controller.mu, Queue.mu. A Queue's token is held
// without any of them.
package nvme
