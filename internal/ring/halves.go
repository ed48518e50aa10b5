package ring

import "runtime"

// minHalved is the size from which a read that waits for a disk is halved.
const minHalved = 512 << 10

// fillHalves reads a piece by O_DIRECT in two halves at once, and sends the one
// that comes first on its way to the GPU while the disk is at work on the other.
// A disk is not slower for it, and the caller waits for half a copy instead of a
// whole one. What does not come through in full is left to read.
func (l *lane) fillHalves(s *slot) {
	b := l.openBatch()
	if b == nil {
		return
	}
	s.halve()
	// The kernel completes reads on the thread that submitted them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	q := &s.op.reqs[s.parts[0].req]
	for i := range s.parts {
		from, to, pos := s.parts[i].around(q, len(s.mem))
		if b.Read(q.Direct, s.mem[from:to], pos, uint64(i)) != nil {
			break
		}
	}
	for b.Busy() > 0 {
		if err := b.Submit(1); err != nil {
			l.dropBatch(err)
			return
		}
		for _, d := range l.done[:b.Reap(l.done)] {
			p := &s.parts[d.User]
			if from, to, _ := p.around(q, len(s.mem)); int64(d.Res) == to-from {
				p.got, p.direct = p.n, p.n
				l.send(s, p)
			}
		}
	}
}

// halve cuts the one part of a slot on a border of the file.
func (s *slot) halve() {
	p := &s.parts[0]
	q := &s.op.reqs[p.req]
	pos := q.Off + p.off
	n := int(down(pos+int64(p.n/2), max(q.border(), cutUnit)) - pos)
	rest := *p
	rest.off, rest.at, rest.n = p.off+int64(n), p.at+n, p.n-n
	p.n = n
	s.parts = append(s.parts, rest)
}
