package nvme

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	abi "github.com/culvert-io/culvert/internal/abi/nvme"
)

// A GPUQueue is a queue pair in GPU memory. A kernel on the GPU writes commands
// and doorbells and processes completions, so neither data nor queues go through
// host memory. The package comment says what was tested.
type GPUQueue struct {
	c        *Controller
	dev      gpu.Device
	pair     *Queue // as created in the controller; the host does not poll it
	mem      *Buffer
	kernel   gpu.Func
	stream   gpu.Stream
	cleanups []func() error

	mu       sync.Mutex // held while the kernel runs
	state    kernels.NVMe
	closedBy error
}

// Offsets in the memory of a GPUQueue. Each part has a page of 64 KiB, which is
// contiguous on the bus.
const (
	gpuSQ = iota * gpuPage
	gpuCQ
	gpuLists
	gpuControl
	gpuQueueSize

	gpuPages = gpuControl + pageSize // bus addresses, after the control block
)

// maxGPUDepth is the depth of a submission queue of 64 KiB.
const maxGPUDepth = gpuPage/abi.CommandSize - 1

// pollTime is about the time of one poll by the kernel, which counts polls until
// its timeout because it has no clock.
const pollTime = time.Microsecond

// A mappedBAR is a transport whose registers are mapped into the process, so that
// they can be registered with a GPU.
type mappedBAR interface{ Mapped() []byte }

// NewGPUQueue makes a queue pair in GPU memory for depth commands in flight. A
// controller has at most one. A reset of the controller ends it.
func (c *Controller) NewGPUQueue(d gpu.Device, depth int) (*GPUQueue, error) {
	fail := func(err error) error {
		return fmt.Errorf("nvme %s: new queue in memory of gpu:%d: %w", c.Name(), d.Info().Index, err)
	}
	bar, ok := c.t.(mappedBAR)
	switch {
	case depth < 1 || depth > maxGPUDepth:
		return nil, fail(fmt.Errorf("depth %d must be 1 to %d", depth, maxGPUDepth))
	case !ok:
		return nil, fail(fmt.Errorf("registers are not mapped into the process, so the GPU cannot write doorbells: %w", errors.ErrUnsupported))
	case c.maxTransfer < gpuPage:
		return nil, fail(fmt.Errorf("controller limit of %d bytes per command is below the kernel's %d: %w", c.maxTransfer, gpuPage, errors.ErrUnsupported))
	}
	if c.hasGPUQueue() {
		return nil, fail(ErrBusy)
	}
	q := &GPUQueue{c: c, dev: d}
	err := q.prepare(bar.Mapped())
	if err == nil {
		err = q.create(min(depth, int(c.cap.MQES())))
	}
	if err != nil {
		return nil, fail(errors.Join(err, q.free()))
	}
	return q, nil
}

func (c *Controller) hasGPUQueue() bool {
	c.lock()
	defer c.unlock()
	return c.gpuQueue != nil
}

// prepare allocates what the GPU needs. free releases it.
func (q *GPUQueue) prepare(bar []byte) (err error) {
	if q.mem, err = q.c.AllocGPU(q.dev, gpuQueueSize); err != nil {
		return err
	}
	q.cleanups = append(q.cleanups, q.mem.Close)
	// New memory has old contents, which might look like completions.
	if err := q.dev.Fill(q.at(0), 0, 1, gpuQueueSize); err != nil {
		return err
	}
	if err := q.loadKernel(); err != nil {
		return err
	}
	return q.registerBAR(bar)
}

// create creates the queues in the controller.
func (q *GPUQueue) create(depth int) error {
	c := q.c
	c.lock()
	defer c.unlock()
	if c.gpuQueue != nil {
		return ErrBusy
	}
	id, err := c.allocID()
	if err != nil {
		return err
	}
	bus, stride := q.mem.table.at, c.cap.DSTRD()
	q.pair = &Queue{c: c, id: id, n: uint32(depth) + 1, sqBus: bus(gpuSQ), cqBus: bus(gpuCQ), gen: c.gen.Load()}
	if err := c.create(q.pair); err != nil {
		c.freeID(id)
		return err
	}
	q.cleanups = append(q.cleanups, q.remove)
	q.state.SQDoorbell += gpu.Addr(abi.SQTDBL(id, stride))
	q.state.CQDoorbell += gpu.Addr(abi.CQHDBL(id, stride))
	q.state.SQ, q.state.CQ = q.at(gpuSQ), q.at(gpuCQ)
	q.state.Lists, q.state.ListsBus, q.state.Pages = q.at(gpuLists), bus(gpuLists), q.at(gpuPages)
	q.state.Entries, q.state.Phase = q.pair.n, 1
	q.state.Looks = uint32(min(c.cfg.Timeout/pollTime, math.MaxUint32))
	c.gpuQueue = q
	return nil
}

func (q *GPUQueue) at(off uint64) gpu.Addr { return q.mem.Span().Addr() + gpu.Addr(off) }

// loadKernel loads the kernel and makes a stream.
func (q *GPUQueue) loadKernel() error {
	mod, err := q.dev.Load(kernels.PTX)
	if err != nil {
		return err
	}
	q.cleanups = append(q.cleanups, mod.Close)
	if q.kernel, err = mod.Func("culvert_nvme"); err != nil {
		return err
	}
	if q.stream, err = q.dev.NewStream(); err != nil {
		return err
	}
	q.cleanups = append(q.cleanups, q.stream.Close)
	return nil
}

// registerBAR registers the controller's registers with the GPU, for doorbells.
func (q *GPUQueue) registerBAR(bar []byte) error {
	at := uintptr(gpu.HostAddr(bar))
	if err := q.dev.Register(at, uint64(len(bar)), gpu.RegisterIOMemory|gpu.RegisterDeviceMap); err != nil {
		return fmt.Errorf("register the controller's BAR0 with the GPU: %w", err)
	}
	q.cleanups = append(q.cleanups, func() error { return q.dev.Unregister(at) })
	base, err := q.dev.DevicePointer(at)
	q.state.SQDoorbell, q.state.CQDoorbell = base, base
	return err
}

// remove deletes the pair in the controller, unless a reset has. The caller holds
// resetting.
func (q *GPUQueue) remove() error {
	defer q.c.freeID(q.pair.id)
	if q.c.gen.Load() != q.pair.gen || q.c.Err() != nil || q.c.halted {
		return nil
	}
	err := q.c.remove(q.pair)
	if err != nil && !q.c.halted {
		q.c.halt(err) // so that the controller does not write to the memory
	}
	return err
}

// free releases everything, in reverse order.
func (q *GPUQueue) free() error {
	var errs []error
	for i := len(q.cleanups) - 1; i >= 0; i-- {
		errs = append(errs, q.cleanups[i]())
	}
	q.cleanups = nil
	return errors.Join(errs...)
}

// Depth is the largest number of commands in flight.
func (q *GPUQueue) Depth() int { return int(q.pair.n) - 1 }

// Close waits for a running kernel and deletes the queue pair.
func (q *GPUQueue) Close() error {
	q.c.lock()
	defer q.c.unlock()
	if q.c.gpuQueue != q {
		return fmt.Errorf("nvme %s: queue in GPU memory: %w", q.c.Name(), ErrClosed)
	}
	return q.close(ErrClosed)
}

// close is Close with Controller.resetting held.
func (q *GPUQueue) close(why error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.c.gpuQueue = nil
	q.closedBy = cmp.Or(q.closedBy, why)
	return q.free()
}

// Read lets the GPU read blocks from lba into its memory, buf at off. Offset and
// size must be multiples of 64 KiB. ctx is checked between launches, which
// transfer up to 32 MiB each.
func (q *GPUQueue) Read(ctx context.Context, ns *Namespace, buf *Buffer, off uint64, lba, blocks uint64) error {
	return q.transfer(ctx, ns, OpRead, buf, off, lba, blocks)
}

// Write lets the GPU write blocks from lba with the data of buf at off.
func (q *GPUQueue) Write(ctx context.Context, ns *Namespace, buf *Buffer, off uint64, lba, blocks uint64) error {
	return q.transfer(ctx, ns, OpWrite, buf, off, lba, blocks)
}

func (q *GPUQueue) transfer(ctx context.Context, ns *Namespace, op Op, buf *Buffer, off uint64, lba, blocks uint64) error {
	fail := func(err error) error {
		return &OpError{Controller: q.c.Name(), Op: op.String() + " by the GPU", NSID: ns.id, LBA: lba, Blocks: uint32(blocks), Err: err}
	}
	per := uint64(gpuPage) >> ns.shift
	switch {
	case ns.c != q.c || buf == nil || buf.c != q.c || buf.host != nil:
		return fail(errors.New("namespace and buffer must belong to this controller, the buffer in GPU memory"))
	case off%gpuPage != 0 || blocks == 0 || blocks%per != 0:
		return fail(fmt.Errorf("%d blocks at offset %d: must be multiples of %d bytes", blocks, off, gpuPage))
	case off > buf.size || blocks/per > (buf.size-off)/gpuPage:
		return fail(fmt.Errorf("range exceeds the buffer of %d bytes", buf.size))
	case !buf.acquire():
		return fail(ErrClosed)
	}
	defer buf.release()
	for blocks > 0 {
		if err := ctx.Err(); err != nil {
			return fail(err)
		}
		n := min(blocks/per, kernels.NVMeCommands)
		if err := q.run(ns, op, buf, off, lba, n); err != nil {
			return err
		}
		off, lba, blocks = off+n*gpuPage, lba+n*per, blocks-n*per
	}
	return nil
}

// run does one launch: n commands of a page each.
func (q *GPUQueue) run(ns *Namespace, op Op, buf *Buffer, off, lba, n uint64) error {
	per := uint32(gpuPage >> ns.shift)
	q.mu.Lock()
	q.state.NSID, q.state.Opcode, q.state.LBA = ns.id, uint32(ops[op].opcode), lba
	q.state.Blocks, q.state.Count = per, uint32(n)
	err := q.closedBy
	if err == nil {
		err = q.launch(buf, off)
	}
	s := q.state
	q.mu.Unlock()
	fail := func(first, count uint64, err error) error {
		return &OpError{
			Controller: q.c.Name(), Op: op.String() + " by the GPU", NSID: ns.id,
			LBA: lba + first*uint64(per), Blocks: uint32(count) * per, Err: err,
		}
	}
	switch {
	case err != nil:
		return fail(0, n, errors.Join(err, q.abandon(err)))
	case s.Done < s.Count:
		err := fmt.Errorf("%d of %d commands completed, %d stray completions: %w", s.Done, s.Count, s.Strays, ErrTimeout)
		return fail(0, n, errors.Join(err, q.abandon(err)))
	case abi.Status(s.Status).Code() != abi.SUCCESS:
		return fail(uint64(s.Failed), 1, Status(abi.Status(s.Status).Code()))
	}
	return nil
}

// launch runs the kernel and waits for its end. The caller holds mu.
func (q *GPUQueue) launch(buf *Buffer, off uint64) error {
	if q.c.gen.Load() != q.pair.gen {
		return ErrReset
	}
	var pages []byte
	for i := range uint64(q.state.Count) {
		pages = binary.LittleEndian.AppendUint64(pages, buf.table.at(off+i*gpuPage))
	}
	if err := q.dev.CopyIn(q.at(gpuPages), pages); err != nil {
		return err
	}
	if err := q.dev.CopyIn(q.at(gpuControl), q.state.Append(nil)); err != nil {
		return err
	}
	if err := q.stream.Launch(q.kernel, gpu.Dim{}, gpu.Dim{}, q.at(gpuControl)); err != nil {
		return err
	}
	if err := q.stream.Synchronize(); err != nil {
		return err
	}
	raw := make([]byte, kernels.NVMeSize)
	if err := q.dev.CopyOut(raw, q.at(gpuControl)); err != nil {
		return err
	}
	return q.state.Decode(raw)
}

// abandon deletes a queue with commands that did not complete: the controller
// might still access their memory. When it returns, the controller does not.
func (q *GPUQueue) abandon(why error) error {
	q.c.lock()
	defer q.c.unlock()
	if q.c.gpuQueue != q {
		return nil
	}
	return q.close(why)
}
