package crash

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// From drivers/md/dm-log-writes.c:
const (
	writeLogMagic   = 0x6a736677736872
	writeLogVersion = 1

	superSize = 8 + 8 + 8 + 4 // struct log_write_super: magic, version, nr_entries, sectorsize
	entrySize = 8 + 8 + 8 + 8 // struct log_write_entry: sector, nr_sectors, flags, data_len
)

// Flags of an entry.
const (
	flagFlush   = 1 << iota // the drive's cache was flushed before it
	flagFUA                 // it was durable before it was acknowledged
	flagDiscard             // the range was discarded; there is no data
	flagMark                // a note of the user; no write
)

// An entry is one write.
type entry struct {
	off   int64 // on the drive, in bytes
	len   int64
	flags uint64
	data  int64 // offset of its data in the log
}

// durable reports whether the drive guaranteed something with this entry.
func (e entry) durable() bool { return e.flags&(flagFlush|flagFUA) != 0 }

// A writeLog reads a log of everything that was written to a drive, while it grows:
// the format of the kernel's dm-log-writes target and of QEMU's blklogwrites driver.
// Applying the first n entries to a blank drive gives its state after n writes.
type writeLog struct {
	r      io.ReaderAt
	sector int64
}

// maxWrite limits the length of an entry: no drive accepts more in one command, and a
// damaged log must not allocate all memory.
const maxWrite = 1 << 30

// errFormat means that a drive has no log of writes.
var errFormat = errors.New("not a log of writes")

// openLog checks the head of a log.
func openLog(r io.ReaderAt) (*writeLog, error) {
	l := &writeLog{r: r}
	super, err := l.super()
	if err != nil {
		return nil, err
	}
	l.sector = int64(super.sector)
	return l, nil
}

type super struct {
	entries uint64
	sector  uint32
}

func (l *writeLog) super() (super, error) {
	var b [superSize]byte
	if _, err := l.r.ReadAt(b[:], 0); err != nil {
		return super{}, fmt.Errorf("head of the log of writes: %w", err)
	}
	le := binary.LittleEndian
	magic, version := le.Uint64(b[0:]), le.Uint64(b[8:])
	s := super{le.Uint64(b[16:]), le.Uint32(b[24:])}
	switch {
	case magic != writeLogMagic || version != writeLogVersion:
		return super{}, fmt.Errorf("%w: magic %#x, version %d", errFormat, magic, version)
	case s.sector < 512 || s.sector > 1<<16 || s.sector&(s.sector-1) != 0:
		return super{}, fmt.Errorf("%w: sector size %d", errFormat, s.sector)
	}
	return s, nil
}

// length is the number of entries written so far.
func (l *writeLog) length() (int, error) {
	s, err := l.super()
	return int(s.entries), err
}

// entries reads the first n entries.
func (l *writeLog) entries(n int) ([]entry, error) {
	var es []entry
	at := l.sector
	for i := range n {
		var b [entrySize]byte
		if _, err := l.r.ReadAt(b[:], at); err != nil {
			return nil, fmt.Errorf("entry %d of the log of writes: %w", i, err)
		}
		le := binary.LittleEndian
		sector, count := le.Uint64(b[0:]), le.Uint64(b[8:])
		e := entry{flags: le.Uint64(b[16:]), data: at + l.sector}
		if max := uint64(1<<62) / uint64(l.sector); sector > max || count > max {
			return nil, fmt.Errorf("%w: entry %d at sector %d with %d sectors", errFormat, i, sector, count)
		}
		e.off, e.len = int64(sector)*l.sector, int64(count)*l.sector
		at = e.data
		if e.flags&(flagDiscard|flagMark) == 0 {
			if e.len > maxWrite {
				return nil, fmt.Errorf("%w: entry %d has %d bytes", errFormat, i, e.len)
			}
			at += e.len
		}
		es = append(es, e)
	}
	return es, nil
}

// A target is what entries are applied to.
type target interface {
	io.WriterAt
	Discard(off, n int64) error
}

// apply repeats a write.
func (l *writeLog) apply(e entry, t target) error {
	switch {
	case e.flags&flagMark != 0 || e.len == 0:
		return nil
	case e.flags&flagDiscard != 0:
		return t.Discard(e.off, e.len)
	}
	n, err := io.Copy(io.NewOffsetWriter(t, e.off), io.NewSectionReader(l.r, e.data, e.len))
	if err == nil && n < e.len {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("repeat a write of %d bytes at %d: %w", e.len, e.off, err)
	}
	return nil
}
