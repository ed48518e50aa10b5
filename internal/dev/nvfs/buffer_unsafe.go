package nvfs

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/internal/dev"
)

// A Config describes a buffer.
type Config struct {
	Addr, Size uint64 // of the GPU memory
	// Location is the GPU's: domain<<32 | bus<<8 | device<<3 | function.
	Location uint64
	// Shadow is the size of the shadow buffer, the most that one request can move: a
	// multiple of 64 KiB up to 16 MiB. 0 means the size of the buffer, up to 16 MiB.
	Shadow int
	// Zero clears n bytes of GPU memory, for holes of a file.
	Zero func(addr, n uint64) error
}

// A Buffer is GPU memory for transfers from and to files. It is safe for concurrent
// use; transfers run one after the other.
type Buffer struct {
	c   *Client
	cfg Config

	mu     sync.Mutex // held during a transfer
	shadow dev.Mapping
	meta   []byte
	arg    *abi.Arg
	sparse abi.Sparse
	zeroed int64 // bytes of holes
	hooked bool  // a storage driver has registered
	// wasRead means that a READ has mapped the buffer.
	wasRead bool
}

// Register binds GPU memory to a shadow buffer.
func (c *Client) Register(cfg Config) (*Buffer, error) {
	b := &Buffer{c: c, cfg: cfg, arg: new(abi.Arg)}
	if _, err := c.buffers.Take(func() (*Buffer, error) { return b, b.bind() }); err != nil {
		return nil, errors.Join(fmt.Errorf("nvidia-fs buffer %#x+%#x: %w", cfg.Addr, cfg.Size, err), b.release())
	}
	return b, nil
}

func (b *Buffer) bind() (err error) {
	if b.cfg.Addr%abi.BLOCK_SIZE != 0 {
		return fmt.Errorf("address: %w", ErrAlign)
	}
	if b.cfg.Size == 0 || b.cfg.Size > 1<<47 {
		return syscall.EINVAL
	}
	const prot = unix.PROT_READ | unix.PROT_WRITE
	if b.meta, err = unix.Mmap(-1, 0, abi.MetaSize, prot, unix.MAP_SHARED|unix.MAP_ANON); err != nil {
		return err
	}
	if b.shadow, err = b.c.node.Mmap(0, b.shadowSize(), prot); err != nil {
		return err
	}
	a := abi.MapArgs{
		Size: int64(b.cfg.Size), PDevInfo: b.cfg.Location, CPUVAddr: uint64(b.shadow.Addr()), GPUVAddr: b.cfg.Addr,
		EndFenceAddr: uint64(uintptr(unsafe.Pointer(&b.meta[0]))), SbufBlock: uint32(b.shadow.Len() / abi.BLOCK_SIZE),
	}
	a.Encode(b.arg[:])
	_, err = b.call(abi.NVFS_IOCTL_MAP)
	return err
}

func (b *Buffer) shadowSize() int {
	if b.cfg.Shadow != 0 {
		return b.cfg.Shadow
	}
	in := b.cfg.Addr % abi.GPU_PAGE_SIZE
	const mask = abi.GPU_PAGE_SIZE - 1
	return int(min(abi.MAX_SHADOW, (in+b.cfg.Size+mask)&^mask))
}

// call issues a request and returns its result.
func (b *Buffer) call(req uintptr) (int64, error) {
	err := b.c.node.Ioctl(req, unsafe.Pointer(b.arg))
	n := b.arg.Return()
	if errors.Is(err, syscall.EPERM) && n < 0 && n >= -4095 {
		return 0, syscall.Errno(-n)
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// state returns the word of the end-fence page that tells the state of the memory.
func (b *Buffer) state() *uint32 { return (*uint32)(unsafe.Pointer(&b.meta[abi.MetaState])) }

// died reports whether the GPU memory was freed.
func (b *Buffer) died() bool { return atomic.LoadUint32(b.state()) == abi.META_DIED }

// clean clears what an earlier READ left in the page. It does not hide that the
// memory was freed.
func (b *Buffer) clean() {
	atomic.CompareAndSwapUint32(b.state(), abi.META_SPARSE, abi.META_CLEAN)
	clear(b.meta[abi.MetaHoles : abi.MetaHoles+4])
}

// Close undoes Register when the running transfer has ended. A second call returns
// fs.ErrClosed.
func (b *Buffer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shadow == nil {
		return fmt.Errorf("nvidia-fs buffer %#x: %w", b.cfg.Addr, fs.ErrClosed)
	}
	b.c.buffers.Forget(b)
	return b.release()
}

// release unmaps the shadow buffer, which undoes MAP, and the page.
func (b *Buffer) release() error {
	if b.shadow != nil {
		if err := b.shadow.Unmap(); err != nil {
			return err // the module may still write to the page
		}
		b.shadow = nil
	}
	if b.meta == nil {
		return nil
	}
	meta := b.meta
	b.meta = nil
	return unix.Munmap(meta)
}
