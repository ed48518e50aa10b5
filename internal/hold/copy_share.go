package hold

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// copyChunk is how much passes through host memory at a time.
const copyChunk = 4 << 20

// copyOut puts the bytes of each buffer into a file in memory. The files are the
// caller's even if it fails.
func copyOut(ctx context.Context, buffers []buffer) (files []*os.File, err error) {
	chunk := make([]byte, copyChunk)
	for i, b := range buffers {
		fd, err := unix.MemfdCreate(fmt.Sprintf("culvert-hold-%d", i), unix.MFD_CLOEXEC)
		if err != nil {
			return files, os.NewSyscallError("memfd_create", err)
		}
		f := os.NewFile(uintptr(fd), "held-copy")
		files = append(files, f)
		for off := uint64(0); off < b.size; {
			if err := ctx.Err(); err != nil {
				return files, err
			}
			n := min(copyChunk, b.size-off)
			if err := b.dev.CopyOut(chunk[:n], b.base+gpu.Addr(off)); err != nil {
				return files, err
			}
			if _, err := f.WriteAt(chunk[:n], int64(off)); err != nil {
				return files, err
			}
			off += n
		}
	}
	return files, nil
}

// copyIn takes size bytes of a file into new memory of the GPU. It reads instead
// of mapping: a file that is shorter than it should be is an error, not a fault.
func copyIn(dev gpu.Device, f *os.File, size uint64) (gpu.Addr, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if uint64(st.Size()) < size {
		return 0, fmt.Errorf("%d of them came: %w", st.Size(), io.ErrUnexpectedEOF)
	}
	base, err := dev.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		return 0, err
	}
	chunk := make([]byte, copyChunk)
	for off := uint64(0); off < size; {
		n := min(copyChunk, size-off)
		_, err := f.ReadAt(chunk[:n], int64(off))
		if err == nil {
			err = dev.CopyIn(base+gpu.Addr(off), chunk[:n])
		}
		if err != nil {
			return 0, errors.Join(err, dev.Free(base))
		}
		off += n
	}
	return base, nil
}
