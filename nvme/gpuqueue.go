package nvme

import (
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

// A GPUQueue is a queue pair whose entries lie in GPU memory. A kernel on the
// GPU writes the commands, rings the doorbells and takes the completions, so
// that neither the data nor the queues touch the host. The package comment says
// how far this has been tried.
type GPUQueue struct {
	c      *Controller
	dev    gpu.Device
	pair   *Queue // what the controller is told; nobody polls it
	mem    *Buffer
	kernel gpu.Func
	stream gpu.Stream
	ends   []func() error

	mu    sync.Mutex // held while the kernel runs
	state kernels.NVMe
	gone  error
}

// Where in the memory of a GPUQueue what lies: each part has a page of 64 KiB,
// which is in one piece on the bus.
const (
	gpuSQ = iota * gpuPage
	gpuCQ
	gpuLists
	gpuControl
	gpuQueueSize

	gpuPages = gpuControl + pageSize // of bus addresses, behind the control block
)

// maxGPUDepth has a submission queue that fits into a page of 64 KiB.
const maxGPUDepth = gpuPage/abi.CommandSize - 1

// gpuLook is about how long the kernel takes to look for a completion. GPUs have
// no clock that tells it when to give up.
const gpuLook = time.Microsecond

// A mappedBAR is a transport whose registers are mapped into the process, where
// a GPU can be given them.
type mappedBAR interface{ Mapped() []byte }

// NewGPUQueue makes a queue pair in the memory of a GPU, with room for depth
// commands in flight. A controller has one at a time, and a reset of the
// controller ends it.
func (c *Controller) NewGPUQueue(d gpu.Device, depth int) (*GPUQueue, error) {
	fail := func(err error) error {
		return fmt.Errorf("nvme %s: queue in the memory of gpu:%d: %w", c.Name(), d.Info().Index, err)
	}
	bar, ok := c.t.(mappedBAR)
	switch {
	case depth < 1 || depth > maxGPUDepth:
		return nil, fail(fmt.Errorf("depth %d: want 1 to %d", depth, maxGPUDepth))
	case !ok:
		return nil, fail(fmt.Errorf("the registers are not mapped into the process, so the GPU cannot ring doorbells: %w", errors.ErrUnsupported))
	case c.maxTransfer < gpuPage:
		return nil, fail(fmt.Errorf("the controller takes %d bytes at once, and the kernel asks for %d: %w", c.maxTransfer, gpuPage, errors.ErrUnsupported))
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

// prepare gets what the GPU needs. free gives it back.
func (q *GPUQueue) prepare(bar []byte) (err error) {
	if q.mem, err = q.c.AllocGPU(q.dev, gpuQueueSize); err != nil {
		return err
	}
	q.ends = append(q.ends, q.mem.Close)
	// Memory comes with what was there before, which may look like completions.
	if err := q.dev.Fill(q.at(0), 0, 1, gpuQueueSize); err != nil {
		return err
	}
	if err := q.load(); err != nil {
		return err
	}
	return q.ring(bar)
}

// create tells the controller of the queues.
func (q *GPUQueue) create(depth int) error {
	c := q.c
	c.lock()
	defer c.unlock()
	if c.gpuQueue != nil {
		return ErrBusy
	}
	id, err := c.takeID()
	if err != nil {
		return err
	}
	bus, stride := q.mem.table.at, c.cap.DSTRD()
	q.pair = &Queue{c: c, id: id, n: uint32(depth) + 1, sqBus: bus(gpuSQ), cqBus: bus(gpuCQ), gen: c.gen.Load()}
	if err := c.create(q.pair); err != nil {
		c.dropID(id)
		return err
	}
	q.ends = append(q.ends, q.remove)
	q.state.SQDoorbell += gpu.Addr(abi.SQTDBL(id, stride))
	q.state.CQDoorbell += gpu.Addr(abi.CQHDBL(id, stride))
	q.state.SQ, q.state.CQ = q.at(gpuSQ), q.at(gpuCQ)
	q.state.Lists, q.state.ListsBus, q.state.Pages = q.at(gpuLists), bus(gpuLists), q.at(gpuPages)
	q.state.Entries, q.state.Phase = q.pair.n, 1
	q.state.Looks = uint32(min(c.cfg.Timeout/gpuLook, math.MaxUint32))
	c.gpuQueue = q
	return nil
}

func (q *GPUQueue) at(off uint64) gpu.Addr { return q.mem.Span().Addr() + gpu.Addr(off) }

// load gets the kernel.
func (q *GPUQueue) load() error {
	mod, err := q.dev.Load(kernels.PTX)
	if err != nil {
		return err
	}
	q.ends = append(q.ends, mod.Close)
	if q.kernel, err = mod.Func("culvert_nvme"); err != nil {
		return err
	}
	if q.stream, err = q.dev.NewStream(); err != nil {
		return err
	}
	q.ends = append(q.ends, q.stream.Close)
	return nil
}

// ring gives the GPU the controller's registers, for the doorbells in them.
func (q *GPUQueue) ring(bar []byte) error {
	at := uintptr(gpu.HostAddr(bar))
	if err := q.dev.Register(at, uint64(len(bar)), gpu.RegisterIOMemory|gpu.RegisterDeviceMap); err != nil {
		return fmt.Errorf("the GPU does not take the controller's registers: %w", err)
	}
	q.ends = append(q.ends, func() error { return q.dev.Unregister(at) })
	base, err := q.dev.DevicePointer(at)
	q.state.SQDoorbell, q.state.CQDoorbell = base, base
	return err
}

// remove takes the pair from the controller, unless a reset has. Call with
// resetting held.
func (q *GPUQueue) remove() error {
	defer q.c.dropID(q.pair.id)
	if q.c.gen.Load() != q.pair.gen || q.c.Err() != nil || q.c.halted {
		return nil
	}
	err := q.c.remove(q.pair)
	if err != nil && !q.c.halted {
		q.c.halt(err) // to be sure that nothing is written there any more
	}
	return err
}

// free gives everything back, last first.
func (q *GPUQueue) free() error {
	var errs []error
	for i := len(q.ends) - 1; i >= 0; i-- {
		errs = append(errs, q.ends[i]())
	}
	q.ends = nil
	return errors.Join(errs...)
}

// Depth is how many commands can be in flight.
func (q *GPUQueue) Depth() int { return int(q.pair.n) - 1 }

// Close deletes the queue pair, after the kernel that runs has ended.
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
	if q.gone == nil {
		q.gone = why
	}
	return q.free()
}

// Read has the GPU read blocks from lba into memory of its own, buf at off. All
// of it comes in whole pages of 64 KiB. ctx is looked at between launches, which
// move up to 32 MiB each.
func (q *GPUQueue) Read(ctx context.Context, ns *Namespace, buf *Buffer, off uint64, lba, blocks uint64) error {
	return q.transfer(ctx, ns, OpRead, buf, off, lba, blocks)
}

// Write has the GPU write blocks from lba with what buf holds at off.
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
		return fail(errors.New("want a namespace of this controller and GPU memory that is mapped for it"))
	case off%gpuPage != 0 || blocks == 0 || blocks%per != 0:
		return fail(fmt.Errorf("%d blocks at byte %d of the buffer: want whole pages of %d bytes", blocks, off, gpuPage))
	case off > buf.size || blocks/per > (buf.size-off)/gpuPage:
		return fail(fmt.Errorf("the buffer has %d bytes", buf.size))
	case !buf.hold():
		return fail(ErrClosed)
	}
	defer buf.drop()
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

// run is one launch: n commands of a page each.
func (q *GPUQueue) run(ns *Namespace, op Op, buf *Buffer, off, lba, n uint64) error {
	per := uint32(gpuPage >> ns.shift)
	q.mu.Lock()
	q.state.NSID, q.state.Opcode, q.state.LBA = ns.id, uint32(ops[op].opcode), lba
	q.state.Blocks, q.state.Count = per, uint32(n)
	err := q.gone
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
		return fail(0, n, errors.Join(err, q.giveUp(err)))
	case s.Done < s.Count:
		err := fmt.Errorf("the controller answered %d of %d commands, and %d that were none: %w", s.Done, s.Count, s.Strays, ErrTimeout)
		return fail(0, n, errors.Join(err, q.giveUp(err)))
	case abi.Status(s.Status).Code() != abi.SUCCESS:
		return fail(uint64(s.Failed), 1, Status(abi.Status(s.Status).Code()))
	}
	return nil
}

// launch hands the commands to the kernel and waits for its end. Call with mu
// held.
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

// giveUp ends a queue whose commands were not all answered: the controller may
// still have some of them, and with them the memory that they name. When it
// returns the controller has let go.
func (q *GPUQueue) giveUp(why error) error {
	q.c.lock()
	defer q.c.unlock()
	if q.c.gpuQueue != q {
		return nil
	}
	return q.close(why)
}
