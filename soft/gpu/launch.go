package gpu

import (
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
	"github.com/culvert-io/culvert/internal/ptx"
)

// A launch is a kernel with its arguments.
type launch struct {
	kernel      kernels.Kernel
	grid, block gpu.Dim
	args        []uint64
}

// Launch enqueues a kernel.
func (s *Stream) Launch(f gpu.Func, grid, block gpu.Dim, args ...any) error {
	const call = "cuLaunchKernel"
	if err := s.check(call); err != nil {
		return err
	}
	fn, ok := f.(*Func)
	if !ok || fn.mod.dev.ctx != s.ctx || fn.mod.closed.Load() {
		return gpu.Fail(call, gpu.ErrInvalidHandle, "not a function of a module that is loaded in this context")
	}
	op := func() string { return fmt.Sprintf("%s(%s, %d, %d)", call, fn.Name(), grid, block) }
	grid, block = grid.Norm(), block.Norm()
	if why := s.ctx.card.refuses(grid, block); why != "" {
		return gpu.Fail(op(), gpu.ErrInvalidValue, why)
	}
	words, err := ptx.EncodeArgs(nil, fn, args)
	if err != nil {
		return gpu.Fail(op(), gpu.ErrInvalidValue, err.Error())
	}
	return s.push(call, task{kind: taskLaunch, launch: &launch{fn.kernel, grid, block, words}})
}

// refuses returns why a launch is too large, or "". All limits but that of threads are
// the same for all models.
func (g *GPU) refuses(grid, block gpu.Dim) string {
	const maxGridX, maxGridYZ, maxBlockXY, maxBlockZ = 1<<31 - 1, 1<<16 - 1, 1024, 64
	limit := uint64(g.model.Attributes[abi.AttrMaxThreadsPerBlock])
	switch {
	case block.X > maxBlockXY || block.Y > maxBlockXY || block.Z > maxBlockZ:
		return fmt.Sprintf("a block has at most %d x %d x %d threads", maxBlockXY, maxBlockXY, maxBlockZ)
	case block.Threads() > limit:
		return fmt.Sprintf("a block has at most %d threads", limit)
	case grid.X > maxGridX || grid.Y > maxGridYZ || grid.Z > maxGridYZ:
		return fmt.Sprintf("a grid has at most %d x %d x %d blocks", maxGridX, maxGridYZ, maxGridYZ)
	}
	return ""
}

// run executes the whole grid. An error loses the context, as on hardware.
func (l *launch) run(c *context) {
	v := &view{ctx: c}
	defer v.close()
	err := l.kernel.Run(kernels.Launch{Grid: l.grid, Block: l.block, Args: l.args, Mem: v})
	if err == nil {
		return
	}
	code, ok := errors.AsType[gpu.Code](err)
	if !ok {
		code = gpu.ErrLaunchFailed
	}
	c.lose(code, err.Error())
}

// A view is the memory that a kernel accesses, as kernels.Mem. It holds the blocks until
// the kernel ends.
type view struct {
	ctx  *context
	held []*block
}

// Bytes returns memory of the kernel's own card, of any context as on an H200, and host
// memory that is pinned, managed or, with pageable access, any.
func (v *view) Bytes(a gpu.Addr, n uint64) ([][]byte, error) {
	d := v.ctx.drv
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.regions.Find(a); r != nil && r.kind.OnDevice() && r.dev.ctx.card != v.ctx.card {
		return nil, fmt.Errorf("%d bytes at %v belong to another GPU: %w", n, a, gpu.ErrIllegalAddress)
	}
	p, err := d.resolve(a, n, v.ctx.anyHost())
	if err != nil {
		return nil, fmt.Errorf("%v: %w", err, gpu.ErrIllegalAddress)
	}
	if k := len(v.held); k > 0 && v.held[k-1] == p.blk {
		p.blk.holds-- // held by us already
	} else {
		v.held = append(v.held, p.blk)
	}
	return p.blk.segs(p.off, n), nil
}

func (v *view) close() {
	d := v.ctx.drv
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range v.held {
		d.drop(b)
	}
}
