package nvmestorage

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/soft/block"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// halfHooked passes a request to an array whose second drive has a driver without hooks:
// that one moves the bytes of the shadow buffer.
func (d *Driver) halfHooked(l *block.Layer, r *nvfs.Request) error {
	if l.Chunk == 0 {
		return d.mirrored(r)
	}
	for done := int64(0); done < int64(len(r.Pages)); {
		off := r.Off + done*blockSize
		n := min((l.Chunk-off%l.Chunk)/blockSize, int64(len(r.Pages))-done)
		part := nvfs.Request{FD: r.FD, Write: r.Write, Off: off, Pages: r.Pages[done : done+n]}
		submit := d.submit
		if off/l.Chunk%2 == 1 {
			submit = d.submitUnhooked
		}
		if err := submit(&part); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// A mirror is the second drive of RAID 1: where it differs from the first, which has the
// file.
type mirror struct {
	reads  atomic.Int64
	mu     sync.Mutex
	blocks map[mirrorKey]mirrorBlock
}

type mirrorKey struct {
	dev, ino uint64
	off      int64
}

// A mirrorBlock is what the two drives got. It is void when the file has other bytes than
// the first drive got: then both have been written since.
type mirrorBlock struct{ first, second [blockSize]byte }

// mirrored passes a write to both drives and a read to one of them, in turn.
func (d *Driver) mirrored(r *nvfs.Request) error {
	if !r.Write && d.mirror.reads.Add(1)%2 == 0 {
		return d.mirror.read(r)
	}
	if err := d.submit(r); err != nil || !r.Write {
		return err
	}
	return d.mirror.write(r)
}

// each calls fn for each block of a file's range, with what the file has there.
func each(fd int, off int64, blocks int, fn func(k int, key mirrorKey, now *[blockSize]byte)) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	file, err := unix.Open("/proc/self/fd/"+itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0) // without O_DIRECT
	if err != nil {
		return err
	}
	defer unix.Close(file)
	for k := range blocks {
		var now [blockSize]byte
		at := off + int64(k)*blockSize
		if _, err := unix.Pread(file, now[:], at); err != nil {
			return err
		}
		fn(k, mirrorKey{st.Dev, st.Ino, at}, &now)
	}
	return nil
}

func (m *mirror) write(r *nvfs.Request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.blocks == nil {
		m.blocks = make(map[mirrorKey]mirrorBlock)
	}
	return each(r.FD, r.Off, len(r.Pages), func(k int, key mirrorKey, now *[blockSize]byte) {
		m.blocks[key] = mirrorBlock{*now, [blockSize]byte(r.Pages[k].Mem)}
	})
}

func (m *mirror) read(r *nvfs.Request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return each(r.FD, r.Off, len(r.Pages), func(k int, key mirrorKey, now *[blockSize]byte) {
		if b, ok := m.blocks[key]; ok && b.first == *now {
			now = &b.second
		}
		copy(r.Pages[k].Mem, now[:])
	})
}

// Divergent is how many blocks of a file differ between the two drives of a mirror.
func (d *Driver) Divergent(fd int) (n int, err error) {
	m := &d.mirror
	m.mu.Lock()
	defer m.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	err = each(fd, 0, int((st.Size+blockSize-1)/blockSize), func(_ int, key mirrorKey, now *[blockSize]byte) {
		if b, ok := m.blocks[key]; ok && b.first == *now && b.second != *now {
			n++
		}
	})
	return n, err
}
