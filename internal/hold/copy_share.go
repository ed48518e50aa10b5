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

// copyChunk is how much goes through host memory at a time.
const copyChunk = 4 << 20

// seals keep clients from changing what others get.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL

// copyOut copies each buffer into a file in memory, and seals it. The caller must
// close the files, also after an error.
func copyOut(ctx context.Context, buffers []buffer) (files []*os.File, err error) {
	for i, b := range buffers {
		fd, err := unix.MemfdCreate(fmt.Sprintf("culvert-hold-%d", i), unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			return files, os.NewSyscallError("memfd_create", err)
		}
		f := os.NewFile(uintptr(fd), "shared-copy")
		files = append(files, f)
		err = eachChunk(b.size, func(chunk []byte, off uint64) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := b.dev.CopyOut(chunk, b.base+gpu.Addr(off)); err != nil {
				return err
			}
			_, err := f.WriteAt(chunk, int64(off))
			return err
		})
		if err != nil {
			return files, err
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
			return files, os.NewSyscallError("F_ADD_SEALS", err)
		}
	}
	return files, nil
}

// copyIn copies size bytes of a file into new memory of the GPU. It reads the file
// instead of mapping it: a short file is an error, not a fault.
func copyIn(dev gpu.Device, f *os.File, size uint64) (gpu.Addr, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if uint64(st.Size()) < size {
		return 0, fmt.Errorf("only %d came: %w", st.Size(), io.ErrUnexpectedEOF)
	}
	base, err := dev.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		return 0, err
	}
	err = eachChunk(size, func(chunk []byte, off uint64) error {
		if _, err := f.ReadAt(chunk, int64(off)); err != nil {
			return err
		}
		return dev.CopyIn(base+gpu.Addr(off), chunk)
	})
	if err != nil {
		return 0, errors.Join(err, dev.Free(base))
	}
	return base, nil
}

func eachChunk(size uint64, do func(chunk []byte, off uint64) error) error {
	buf := make([]byte, min(size, copyChunk))
	for off := uint64(0); off < size; off += copyChunk {
		if err := do(buf[:min(copyChunk, size-off)], off); err != nil {
			return err
		}
	}
	return nil
}
