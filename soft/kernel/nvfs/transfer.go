package nvfs

import (
	"errors"
	"math"
	"sync"
	"syscall"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
)

// A transfer is a READ or WRITE that was accepted.
type transfer struct {
	m     *Module
	g     *mgroup
	f     targetFile
	write bool
	async bool
	off   int64
	size  uint64
	gpu   uint64 // offset of the first byte from the first GPU page
	fence uint64 // value
	begun time.Time
}

// accept checks a request, in the module's order, and takes the mgroup for it.
func (m *Module) accept(a *abi.IOArgs, write bool) (*transfer, error) {
	switch {
	case a.Offset < 0 || a.Offset%abi.BLOCK_SIZE != 0 || a.Size%abi.BLOCK_SIZE != 0,
		a.Size > math.MaxInt64 || uint64(a.Offset)+a.Size > math.MaxInt64:
		return nil, syscall.EINVAL
	}
	t := transfers.Get().(*transfer)
	*t = transfer{
		m: m, write: write, async: a.Bits&abi.BitSync == 0,
		off: a.Offset, size: a.Size, fence: a.EndFenceValue,
	}
	if err := t.f.open(m, a, write); err != nil {
		transfers.Put(t)
		return nil, err
	}
	if err := t.take(a); err != nil {
		t.f.close()
		transfers.Put(t)
		return nil, err
	}
	return t, nil
}

// transfers are reused, so that a request allocates nothing.
var transfers = sync.Pool{New: func() any { return new(transfer) }}

// take finds the mgroup and moves it to IN_PROGRESS.
func (t *transfer) take(a *abi.IOArgs) error {
	g, err := t.m.bound(a.CPUVAddr)
	if err != nil {
		return err
	}
	t.g = g
	if !g.begin() {
		g.mu.Lock()
		g.drop()
		return syscall.EBUSY
	}
	if err := t.check(a); err != nil {
		g.end()
		return err
	}
	return nil
}

// check runs the module's checks with the mgroup.
func (t *transfer) check(a *abi.IOArgs) error {
	b := t.g.buffer
	if !t.f.direct || t.async && t.fence == 0 || a.DevPtrOff > b.size || t.size > b.size-a.DevPtrOff {
		return syscall.EINVAL
	}
	t.gpu = b.addr - b.start + a.DevPtrOff
	in := t.gpu % abi.GPU_PAGE_SIZE
	if t.gpu%abi.BLOCK_SIZE != 0 || in != 0 && t.size > abi.GPU_PAGE_SIZE-in {
		return syscall.EINVAL
	}
	return nil
}

// cancel undoes accept.
func (t *transfer) cancel() {
	t.f.close()
	t.g.end()
	transfers.Put(t)
}

// start runs a transfer, or starts an asynchronous one, and returns its bytes if it
// has ended.
func (t *transfer) start() (int64, error) {
	op := t.m.stats.op(t.write)
	op.active.Add(1)
	t.begun = time.Now()
	t.m.at("nvfs.io", t.g)
	if !t.async {
		n, err := t.run()
		t.finish(n, err)
		return n, err
	}
	t.m.async.Go(func() {
		t.m.at("nvfs.async", t.g)
		n, err := t.run()
		result := n
		if err != nil {
			result = -int64(errnoOf(err))
		}
		t.g.fence.complete(t.fence, result)
		t.finish(n, err)
	})
	return 0, nil
}

func (t *transfer) finish(n int64, err error) {
	op := t.m.stats.op(t.write)
	op.done(err)
	op.bytes.Add(n)
	since(&op.took, t.begun)
	op.active.Add(-1)
	t.f.close()
	t.g.end()
	transfers.Put(t)
}

// errnoOf returns the errno of an error.
func errnoOf(err error) syscall.Errno {
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return no
	}
	return syscall.EIO
}

// run moves the bytes, window by window. Only a synchronous transfer has more than
// one.
func (t *transfer) run() (done int64, err error) {
	if t.write && t.size > 0 {
		if err := t.f.prepareWrite(); err != nil {
			return 0, err
		}
	}
	for uint64(done) < t.size {
		n, more, err := t.chunk(done)
		if err != nil {
			return 0, err
		}
		if done += n; !more || t.async {
			break
		}
	}
	return done, nil
}

// chunk moves one window.
func (t *transfer) chunk(done int64) (n int64, more bool, err error) {
	g := t.g
	t.m.at("nvfs.chunk", g)
	if !t.async && !g.running() {
		return 0, false, syscall.EIO
	}
	pos := t.gpu + uint64(done)
	in := pos % abi.GPU_PAGE_SIZE
	shadow := uint64(g.mapped) * abi.BLOCK_SIZE
	if in >= shadow {
		return 0, false, syscall.EIO
	}
	want := min(t.size-uint64(done), shadow-in)
	if in != 0 && in+want > abi.GPU_PAGE_SIZE {
		return 0, false, syscall.EIO
	}
	first, count := int(in/abi.BLOCK_SIZE), int(want/abi.BLOCK_SIZE)
	g.window(int(pos/abi.GPU_PAGE_SIZE), first, count)
	off := t.off + done
	if t.write {
		return t.writeChunk(off, first, count)
	}
	return t.readChunk(off, first, count)
}

// window prepares blocks for a transfer.
func (g *mgroup) window(gpuPage, first, count int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gpuBase = gpuPage
	for i := range g.mapped {
		g.blocks[i] = abi.BLOCK_INIT
		if i >= first && i < first+count {
			g.blocks[i] = abi.BLOCK_QUEUED
		}
	}
}

func (t *transfer) readChunk(off int64, first, count int) (n int64, more bool, err error) {
	n, err = t.f.read(t.m, &t.g.look, off, t.g.pages[first:first+count])
	if err != nil {
		return 0, false, err
	}
	short := n < int64(count)*abi.BLOCK_SIZE
	s := abi.Sparse{Offset: off}
	var pages int
	s.Holes, pages, n = t.g.holes(first, n)
	looksSparse := t.f.looksSparse(t.m)
	if looksSparse {
		t.m.stats.sparse.Add(1)
	}
	if len(s.Holes) > 0 {
		s.State = abi.META_SPARSE
		t.m.stats.holes.Add(int64(len(s.Holes)))
		t.m.stats.holePages.Add(int64(pages))
		if !short && !t.async {
			t.m.stats.sparseIO.Add(1)
		}
	}
	if looksSparse || len(s.Holes) > 0 {
		t.g.fence.sparse(&s)
	}
	return n, !short && len(s.Holes) == 0, nil
}

// holes lists the blocks in the first n bytes of a window without a device address.
// It cuts n if the list does not fit into the page.
func (g *mgroup) holes(first int, n int64) (list []abi.Hole, pages int, cut int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	count := int((n + abi.BLOCK_SIZE - 1) / abi.BLOCK_SIZE)
	for i := range count {
		if g.blocks[first+i] >= abi.BLOCK_DMA_START {
			continue
		}
		if k := len(list); k > 0 && int(list[k-1].Start)+int(list[k-1].Blocks) == i {
			list[k-1].Blocks++
		} else if k == abi.MAX_HOLES {
			return list, pages, int64(i) * abi.BLOCK_SIZE
		} else {
			list = append(list, abi.Hole{Start: uint16(i), Blocks: 1})
		}
		pages++
	}
	return list, pages, n
}

// writeChunk writes a window. If no device fetched the bytes from the GPU, a
// synchronous WRITE reports 0 bytes, as the module does, and an asynchronous one an
// error.
func (t *transfer) writeChunk(off int64, first, count int) (n int64, more bool, err error) {
	n, err = t.f.write(t.m, off, t.g.pages[first:first+count])
	if err != nil {
		return 0, false, err
	}
	if list, _, _ := t.g.holes(first, n); len(list) > 0 {
		t.m.stats.writes.stateErr.Add(1)
		if t.async {
			return 0, false, syscall.EIO
		}
		return 0, false, nil
	}
	return n, n == int64(count)*abi.BLOCK_SIZE, nil
}
