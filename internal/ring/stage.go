package ring

import "github.com/culvert-io/culvert/gpu"

// A Staged read is in pinned memory, or on its way from there to the GPU.
type Staged struct {
	ring    *Ring
	slot    *smallSlot
	addr    gpu.Addr
	off     int64
	copyErr error
}

// Stage reads at most StageMax bytes of a file through the page cache, in its caller's
// goroutine, and begins to copy them to the GPU. The caller then moves other bytes, and
// calls Wait, which must be called if there was no error. Stage fails only if it has done
// nothing; what goes wrong later is in the result of Wait.
func (r *Ring) Stage(fd int, off int64, addr gpu.Addr, n int64) (Staged, error) {
	q := Request{Buffered: fd, Direct: -1, Off: off, Addr: addr, Len: n}
	if err := q.check(); err != nil {
		return Staged{}, err
	}
	slot, err := r.staged.acquire()
	if err != nil {
		return Staged{}, err
	}
	s := Staged{ring: r, slot: slot, addr: addr, off: off}
	seg := &slot.segment
	*seg = segment{at: int(off & (page - 1)), n: int(n)}
	r.files.readRest(&q, seg, seg.place(slot.mem))
	if seg.got > 0 {
		r.copies.Add(int64(seg.got))
		s.copyErr = slot.stream.Copy(addr, slot.addr+gpu.Addr(seg.at), uint64(seg.got))
	}
	return s, nil
}

// Full reports whether all bytes were read: the file has not ended, and nothing failed.
func (s *Staged) Full() bool { return s.slot.segment.got == s.slot.segment.n && s.copyErr == nil }

// Wait waits for the copy.
func (s *Staged) Wait() Result {
	seg := &s.slot.segment
	n := int64(seg.got)
	res := Result{N: n, HostBytes: n, Retries: seg.retries, Err: seg.err}
	if n > 0 {
		err := s.copyErr
		if werr := s.slot.wait(); err == nil { // also after an error, so that no copy outlives the use of the slot
			err = werr
		}
		s.ring.copies.Add(-n)
		if err != nil {
			res.N, res.HostBytes = 0, 0
			res.Err = &Error{"copy", s.off, n, s.addr, err}
		}
	}
	s.ring.staged.release(s.slot)
	return res
}
