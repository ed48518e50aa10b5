package nvfs_test

import (
	"errors"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A disk is a storage module whose device moves bytes in the calling thread, so
// that it adds nothing to the orders that tests explore.
type disk struct {
	port *pcie.Function
	ops  *nvfs.Ops
}

func (d *disk) Name() string                 { return "nvme" }
func (d *disk) Version() string              { return "(null)" } // as recorded
func (d *disk) Register(ops *nvfs.Ops) error { d.ops = ops; return nil }
func (d *disk) Unregister()                  {}
func (d *disk) Serves(int) bool              { return true }

func (d *disk) Submit(r *nvfs.Request) error {
	sg, n := d.ops.BlkRqMapSG(r.Pages, nil)
	switch {
	case n == nvfs.NoGPUPages:
		var mem [][]byte
		for _, p := range r.Pages {
			mem = append(mem, p.Mem)
		}
		return transfer(r, mem)
	case n < 0 || d.ops.DMAMapSGAttrs(d.port, sg) < 0:
		return syscall.EIO
	}
	defer d.ops.DMAUnmapSG(sg)
	var ranges []pcie.Range
	for _, s := range sg {
		ranges = append(ranges, pcie.Range{Bus: s.Bus, Len: s.Len})
	}
	dir := pcie.Write
	if r.Write {
		dir = pcie.Read
	}
	access, err := d.port.AcquireAll(ranges, dir)
	if err != nil {
		return errors.Join(syscall.EIO, err)
	}
	if err := transfer(r, access.Segs()); err != nil {
		return errors.Join(err, access.Release(0))
	}
	return access.Release(access.Len())
}

// transfer reads or writes the file. What is behind its end reads as zeros.
func transfer(r *nvfs.Request, mem [][]byte) error {
	off := r.Off
	for part := range slices.Chunk(mem, 1024) { // IOV_MAX
		size := 0
		for _, b := range part {
			size += len(b)
		}
		if r.Write {
			if n, err := unix.Pwritev(r.FD, part, off); err != nil || n != size {
				return errors.Join(syscall.EIO, err)
			}
			off += int64(size)
			continue
		}
		n, err := unix.Preadv(r.FD, part, off)
		if err != nil {
			return err
		}
		off += int64(size)
		for _, b := range part {
			clear(b[min(n, len(b)):])
			n = max(0, n-len(b))
		}
	}
	return nil
}
