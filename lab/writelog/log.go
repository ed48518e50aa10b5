// Package writelog reads a log of everything that was written to a drive, in
// the format of the kernel's dm-log-writes target, which QEMU's blklogwrites
// driver writes too. Applying the first n entries to a blank drive gives the
// state in which a power cut at that moment would have left it.
package writelog

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

// Flags say what kind of write an entry was.
type Flags uint64

// The flags.
const (
	Flush   Flags = 1 << iota // the drive's cache was flushed before it
	FUA                       // it was durable itself before it was acknowledged
	Discard                   // the range was given up; there is no data
	Mark                      // a note of the user; no write
)

// An Entry is one write.
type Entry struct {
	Off   int64 // on the drive, in bytes
	Len   int64
	Flags Flags
	data  int64 // where its data lies in the log
}

// Durable reports whether the drive promised something with this entry: the
// states just after such entries are the ones a program may rely on.
func (e Entry) Durable() bool { return e.Flags&(Flush|FUA) != 0 }

// A Log reads a log while it grows.
type Log struct {
	r      io.ReaderAt
	sector int64
}

// maxWrite bounds what an entry may claim: no drive takes more in one command,
// and a damaged log must not ask for all memory.
const maxWrite = 1 << 30

// ErrFormat means that something is not a log of writes.
var ErrFormat = errors.New("not a log of writes")

// Open checks the head of a log.
func Open(r io.ReaderAt) (*Log, error) {
	l := &Log{r: r}
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

func (l *Log) super() (super, error) {
	var b [superSize]byte
	if _, err := l.r.ReadAt(b[:], 0); err != nil {
		return super{}, fmt.Errorf("head of the log of writes: %w", err)
	}
	le := binary.LittleEndian
	magic, version := le.Uint64(b[0:]), le.Uint64(b[8:])
	s := super{le.Uint64(b[16:]), le.Uint32(b[24:])}
	switch {
	case magic != writeLogMagic || version != writeLogVersion:
		return super{}, fmt.Errorf("%w: magic %#x, version %d", ErrFormat, magic, version)
	case s.sector < 512 || s.sector > 1<<16 || s.sector&(s.sector-1) != 0:
		return super{}, fmt.Errorf("%w: sector size %d", ErrFormat, s.sector)
	}
	return s, nil
}

// Len is the number of entries written so far.
func (l *Log) Len() (int, error) {
	s, err := l.super()
	return int(s.entries), err
}

// Entries reads the first n entries.
func (l *Log) Entries(n int) ([]Entry, error) {
	var es []Entry
	at := l.sector
	for i := range n {
		var b [entrySize]byte
		if _, err := l.r.ReadAt(b[:], at); err != nil {
			return nil, fmt.Errorf("entry %d of the log of writes: %w", i, err)
		}
		le := binary.LittleEndian
		sector, count := le.Uint64(b[0:]), le.Uint64(b[8:])
		e := Entry{Flags: Flags(le.Uint64(b[16:])), data: at + l.sector}
		if max := uint64(1<<62) / uint64(l.sector); sector > max || count > max {
			return nil, fmt.Errorf("%w: entry %d at sector %d with %d sectors", ErrFormat, i, sector, count)
		}
		e.Off, e.Len = int64(sector)*l.sector, int64(count)*l.sector
		at = e.data
		if e.hasData() {
			if e.Len > maxWrite {
				return nil, fmt.Errorf("%w: entry %d has %d bytes", ErrFormat, i, e.Len)
			}
			at += e.Len
		}
		es = append(es, e)
	}
	return es, nil
}

func (e Entry) hasData() bool { return e.Flags&(Discard|Mark) == 0 }

// A Target is what entries are applied to.
type Target interface {
	io.WriterAt
	Discard(off, n int64) error
}

// Apply repeats a write.
func (l *Log) Apply(e Entry, t Target) error {
	switch {
	case e.Flags&Mark != 0 || e.Len == 0:
		return nil
	case e.Flags&Discard != 0:
		return t.Discard(e.Off, e.Len)
	}
	n, err := io.Copy(io.NewOffsetWriter(t, e.Off), io.NewSectionReader(l.r, e.data, e.Len))
	if err == nil && n < e.Len {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("repeat a write of %d bytes at %d: %w", e.Len, e.Off, err)
	}
	return nil
}
