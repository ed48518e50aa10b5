package nvfs

import (
	"sync"
	"syscall"
	"time"
	"unsafe"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/user"
)

// args are reusable arguments.
var args = sync.Pool{New: func() any { return new(abi.Arg) }}

// Ioctl handles a request. It copies the whole argument before it checks the number.
func (f *File) Ioctl(req uintptr, arg unsafe.Pointer) error {
	a := args.Get().(*abi.Arg)
	defer args.Put(a)
	if err := user.Get(a, arg); err != nil {
		return syscall.ENOMEM
	}
	m := f.m
	switch req {
	case abi.NVFS_IOCTL_REMOVE:
		return nil
	case abi.NVFS_IOCTL_READ, abi.NVFS_IOCTL_WRITE:
		n, err := m.io(a, req == abi.NVFS_IOCTL_WRITE)
		return answer(arg, a, n, err)
	case abi.NVFS_IOCTL_MAP:
		var p abi.MapArgs
		p.Decode(a[:])
		if err := m.mapBuffer(&p); err != nil {
			return answer(arg, a, 0, err)
		}
		return user.Put(arg, a)
	case abi.NVFS_IOCTL_SET_RDMA_REG_INFO:
		var p abi.SetRDMAArgs
		p.Decode(a[:])
		return m.setRDMA(&p)
	case abi.NVFS_IOCTL_GET_RDMA_REG_INFO:
		if err := m.getRDMA(a); err != nil {
			return err
		}
		return user.Put(arg, a)
	case abi.NVFS_IOCTL_CLEAR_RDMA_REG_INFO:
		return m.clearRDMA(a)
	case abi.NVFS_IOCTL_BATCH_IO:
		return m.batch(a)
	}
	return syscall.ENOTTY
}

// answer copies the union back, with the result in it: the module returns -1, which
// is EPERM, for any error.
func answer(arg unsafe.Pointer, a *abi.Arg, n int64, err error) error {
	if err != nil {
		n = -int64(errnoOf(err))
	}
	a.SetReturn(n)
	if user.Put(arg, a) != nil {
		return syscall.EFAULT
	}
	if err != nil {
		return syscall.EPERM
	}
	return nil
}

// io is READ and WRITE.
func (m *Module) io(arg *abi.Arg, write bool) (int64, error) {
	var a abi.IOArgs
	a.Decode(arg[:])
	op := m.stats.op(write)
	op.n.Add(1)
	t, err := m.accept(&a, write)
	if err != nil {
		op.done(err)
		return 0, err
	}
	return t.start()
}

// batch is BATCH_IO: it accepts all entries before it starts the first. The argument
// does not change, so nothing is copied back.
func (m *Module) batch(arg *abi.Arg) error {
	var b abi.BatchArgs
	b.Decode(arg[:])
	m.stats.batches.n.Add(1)
	m.stats.batchActive.Add(1)
	defer m.stats.batchActive.Add(-1)
	begun := time.Now()
	err := m.runBatch(&b)
	since(&m.stats.batchTook, begun)
	m.stats.batches.done(err)
	if err != nil {
		return syscall.EPERM
	}
	return nil
}

func (m *Module) runBatch(b *abi.BatchArgs) error {
	if b.Nents == 0 || b.Nents > abi.MAX_BATCH {
		return syscall.EINVAL
	}
	var list []*transfer
	for i := range b.Nents {
		var entry [abi.IOArgsSize]byte
		err := fetch(&entry, b.IOEntries+i*abi.IOArgsSize)
		if err == nil {
			err = m.add(&list, entry[:])
		}
		if err != nil {
			cancel(list)
			return err
		}
	}
	for i, t := range list {
		if _, err := t.start(); err != nil {
			cancel(list[i+1:])
			return err
		}
	}
	return nil
}

// fetch copies an entry from the process. Nothing is ever mapped at the first page,
// and Go must not make a pointer to it.
func fetch(entry *[abi.IOArgsSize]byte, addr uint64) error {
	if addr < abi.BLOCK_SIZE {
		return syscall.EFAULT
	}
	return user.Get(entry, pointer(addr))
}

// add accepts an entry.
func (m *Module) add(list *[]*transfer, entry []byte) error {
	var a abi.IOArgs
	a.Decode(entry)
	write := a.Bits&abi.OpMask == abi.OpWrite
	op := m.stats.op(write)
	op.n.Add(1)
	t, err := m.accept(&a, write)
	if err != nil {
		op.done(err)
		return err
	}
	*list = append(*list, t)
	return nil
}

// cancel drops entries that were not started.
func cancel(list []*transfer) {
	for _, t := range list {
		t.m.stats.op(t.write).n.Add(-1)
		t.cancel()
	}
}
