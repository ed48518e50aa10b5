package kernels

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"

	"github.com/culvert-io/culvert/gpu"
)

func strrev(l Launch) error {
	text, length := gpu.Addr(l.Args[0]), gpu.Addr(l.Args[1])
	n, err := textLen(l.Mem, text)
	if err != nil {
		return err
	}
	if n > math.MaxInt32 {
		return gpu.ErrIllegalAddress // the CUDA version counts with an int, too
	}
	buf, err := load(l.Mem, text, n)
	if err != nil {
		return err
	}
	slices.Reverse(buf)
	if err := store(l.Mem, text, buf); err != nil {
		return err
	}
	return withWord(l.Mem, length, 4, func(w word) { w.store(n) })
}

// textLen reads byte by byte, because the memory may end right after the text.
func textLen(m Mem, text gpu.Addr) (uint64, error) {
	for n := uint64(0); ; n++ {
		segs, err := bytesOf(m, text+gpu.Addr(n), 1)
		if err != nil {
			return 0, err
		}
		if segs[0][0] == 0 {
			return n, nil
		}
	}
}

func counter(l Launch) error {
	return withWord(l.Mem, gpu.Addr(l.Args[0]), 4, func(w word) { w.add(l.Threads()) })
}

func sum(l Launch) error {
	segs, err := bytesOf(l.Mem, gpu.Addr(l.Args[0]), l.Args[1])
	if err != nil {
		return err
	}
	var total uint64
	for _, s := range segs {
		for _, b := range s {
			total += uint64(b)
		}
	}
	if total == 0 {
		return nil
	}
	return withWord(l.Mem, gpu.Addr(l.Args[2]), 8, func(w word) { w.add(total) })
}

func fill(l Launch) error {
	segs, err := bytesOf(l.Mem, gpu.Addr(l.Args[0]), l.Args[1])
	if err != nil {
		return err
	}
	var at int
	for _, s := range segs {
		fillFrom(s, l.Args[2], at)
		at += len(s)
	}
	return nil
}

// fillFrom fills s, which is at offset at of the whole range: one period of the
// pattern, then copies of it.
func fillFrom(s []byte, pattern uint64, at int) {
	var turn [8]byte
	for i := range turn {
		turn[i] = byte(pattern >> (8 * ((at + i) & 7)))
	}
	for n := copy(s, turn[:]); n < len(s); n *= 2 {
		copy(s[n:], s[:n])
	}
}

func compare(l Launch) error {
	n := l.Args[2]
	a, err := bytesOf(l.Mem, gpu.Addr(l.Args[0]), n)
	if err != nil {
		return err
	}
	b, err := bytesOf(l.Mem, gpu.Addr(l.Args[1]), n)
	if err != nil {
		return err
	}
	var diff uint64
	eachPair(a, b, func(x, y []byte) {
		for i := range x {
			if x[i] != y[i] {
				diff++
			}
		}
	})
	if diff == 0 {
		return nil
	}
	return withWord(l.Mem, gpu.Addr(l.Args[3]), 8, func(w word) { w.add(diff) })
}

func crc32c(l Launch) error {
	segs, err := bytesOf(l.Mem, gpu.Addr(l.Args[0]), l.Args[1])
	if err != nil {
		return err
	}
	var crc uint32
	for _, s := range segs {
		crc = crc32.Update(crc, crc32.MakeTable(crc32.Castagnoli), s)
	}
	if crc == 0 {
		return nil
	}
	return withWord(l.Mem, gpu.Addr(l.Args[2]), 4, func(w word) { w.xor(uint64(crc)) })
}

// A Segment is an entry of the table for gather and scatter. One of Src and Dst
// is an address, the other an offset; see the package comment.
type Segment struct{ Src, Dst, Len uint64 }

// SegmentSize is the size of a Segment in memory: three little-endian words.
const SegmentSize = 24

// Append appends the segment as it is in memory.
func (p Segment) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, p.Src)
	b = binary.LittleEndian.AppendUint64(b, p.Dst)
	return binary.LittleEndian.AppendUint64(b, p.Len)
}

func gather(l Launch) error {
	base := l.Args[0]
	return eachSegment(l, func(p Segment) error { return move(l.Mem, base+p.Dst, p.Src, p.Len) })
}

func scatter(l Launch) error {
	base := l.Args[0]
	return eachSegment(l, func(p Segment) error { return move(l.Mem, p.Dst, base+p.Src, p.Len) })
}

func eachSegment(l Launch, do func(Segment) error) error {
	table, count := gpu.Addr(l.Args[1]), l.Args[2]
	if table%8 != 0 && count != 0 {
		return gpu.ErrMisalignedAddress
	}
	for i := range count {
		raw, err := load(l.Mem, table+gpu.Addr(i*SegmentSize), SegmentSize)
		if err != nil {
			return err
		}
		le := binary.LittleEndian
		if err := do(Segment{le.Uint64(raw), le.Uint64(raw[8:]), le.Uint64(raw[16:])}); err != nil {
			return err
		}
	}
	return nil
}

func move(m Mem, dst, src, n uint64) error {
	from, err := bytesOf(m, gpu.Addr(src), n)
	if err != nil {
		return err
	}
	to, err := bytesOf(m, gpu.Addr(dst), n)
	if err != nil {
		return err
	}
	eachPair(to, from, func(d, s []byte) { copy(d, s) })
	return nil
}
