package nvmestorage

import (
	"bytes"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/soft/block"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// Below puts layers between files and the drive, from the file down. It must be called
// before the first request.
func (d *Driver) Below(layers []block.Layer) {
	d.layers = layers
	if len(layers) > 0 {
		d.view = block.NewView(layers)
	}
}

// SuperBlock returns the device number in a file's super block. btrfs shows another
// one to processes.
func (d *Driver) SuperBlock(dev uint64) uint64 {
	if d.has(func(l block.Layer) bool { return l.Checks }) {
		return dev + 1
	}
	return dev
}

func (d *Driver) has(what func(block.Layer) bool) bool { return slices.ContainsFunc(d.layers, what) }

// descend passes a request through layers to the drive.
func (d *Driver) descend(layers []block.Layer, r *nvfs.Request) error {
	if len(layers) == 0 {
		return d.submit(r)
	}
	l := &layers[0]
	if l.Half {
		return d.halfHooked(l, r)
	}
	if r.Write && l.OwnWrites || !r.Write && l.OwnReads {
		return d.copied(l, layers[1:], r)
	}
	below := *r
	below.Off += l.Shift
	legs := 1
	if r.Write {
		legs = max(l.Legs, 1)
	}
	for range legs {
		if err := d.descend(layers[1:], &below); err != nil {
			return err
		}
	}
	if r.Write {
		return nil
	}
	if l.Transform != nil { // where the layer expects what was read
		for i, p := range r.Pages {
			l.Transform(p.Mem, r.Off+int64(i)*blockSize)
		}
	}
	if l.Checks {
		return verify(r)
	}
	return nil
}

// copied passes a request on with pages of the layer's own. Their memory is not the
// GPU's.
func (d *Driver) copied(l *block.Layer, rest []block.Layer, r *nvfs.Request) error {
	mem, err := unix.Mmap(-1, 0, len(r.Pages)*blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	defer unix.Munmap(mem)
	below := nvfs.Request{FD: r.FD, Write: r.Write, Off: r.Off + l.Shift, Pages: make([]nvfs.Page, len(r.Pages))}
	for i := range below.Pages {
		below.Pages[i].Mem = mem[i*blockSize : (i+1)*blockSize]
	}
	transform := func() {
		if l.Transform != nil {
			l.Transform(mem, r.Off)
		}
	}
	if r.Write {
		for i, p := range r.Pages {
			copy(below.Pages[i].Mem, p.Mem)
		}
		transform()
		return d.descend(rest, &below)
	}
	if err := d.descend(rest, &below); err != nil {
		return err
	}
	transform()
	for i, p := range r.Pages {
		copy(p.Mem, below.Pages[i].Mem)
	}
	return nil
}

// verify compares the pages of a read with the file's checksums: here with the file.
func verify(r *nvfs.Request) error {
	b := make([]byte, blockSize)
	fd, err := unix.Open("/proc/self/fd/"+itoa(r.FD), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for i, p := range r.Pages {
		n, err := unix.Pread(fd, b, r.Off+int64(i)*blockSize)
		if err != nil {
			return err
		}
		if !bytes.Equal(p.Mem[:n], b[:n]) {
			return syscall.EIO
		}
	}
	return nil
}
