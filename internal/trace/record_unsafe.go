package trace

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// slabBytes is the memory that a recorder maps at a time: one huge page.
const slabBytes = 2 << 20

// A Record is a call, a piece of one, or the share of a route in the call before it. Its
// layout is also that of the files of StartIn.
type Record struct {
	begin, end  int64 // nanoseconds since the process started
	off         int64
	bytes, host int64
	turn        uint32 // nanoseconds after begin; 0 if unknown
	file        uint32
	requests    uint32
	gpu         int32
	tag         uint64 // written last: a process can be killed at any time
}

// A tag says what a record is.
type tag struct {
	kind, route, flags uint8
	requests           uint32
	gpu                int32
}

// publish completes a record. The store need not be atomic: only this thread and, when it
// has ended, others read the record, and a kill finds all stores before it done. An atomic
// one would wait for the cache line, which is seldom there.
func (r *Record) publish(t tag) {
	r.requests, r.gpu = t.requests, t.gpu
	r.tag = uint64(t.kind) | uint64(t.route)<<8 | uint64(t.flags)<<16
}

func (r *Record) kind() uint8 { return uint8(r.tag) }

// prepare turns mapped memory into records, with its pages in place: a page fault takes as
// long as a hundred records.
func prepare(mem []byte) []Record {
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	_ = unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
	return asRecords(mem)
}

func asRecords(mem []byte) []Record {
	const size = int(unsafe.Sizeof(Record{}))
	if len(mem) < size {
		return nil
	}
	return unsafe.Slice((*Record)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/size)
}
