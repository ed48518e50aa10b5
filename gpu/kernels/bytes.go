package kernels

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/culvert-io/culvert/gpu"
)

func strrev(l Launch) error {
	text, length := gpu.Addr(l.Args[0]), gpu.Addr(l.Args[1])
	n, err := textLen(l.Mem, text)
	if err != nil {
		return err
	}
	if n > math.MaxInt32 {
		return gpu.ErrIllegalAddress // the GPU counts with an int, too
	}
	segs, err := l.Mem.Bytes(text, n)
	if err != nil {
		return err
	}
	buf := make([]byte, 0, n)
	for _, s := range segs {
		buf = append(buf, s...)
	}
	for _, s := range segs {
		for i := range s {
			s[i] = buf[len(buf)-1]
			buf = buf[:len(buf)-1]
		}
	}
	return withWord(l.Mem, length, 4, func(w word) { w.store(n) })
}

// textLen looks at one byte after the other, because only the text itself says
// how much memory is there.
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

// fillFrom writes the pattern as it stands at offset at of the whole range:
// one turn of it, then copies of what is there.
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

// A Piece is one entry of the table that gather and scatter take. One of Src
// and Dst is an address, the other an offset; see the package comment.
type Piece struct{ Src, Dst, Len uint64 }

// PieceSize is the size of a Piece in memory: three little-endian words.
const PieceSize = 24

// Append adds the piece to b as it stands in memory.
func (p Piece) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, p.Src)
	b = binary.LittleEndian.AppendUint64(b, p.Dst)
	return binary.LittleEndian.AppendUint64(b, p.Len)
}

func gather(l Launch) error {
	base := l.Args[0]
	return eachPiece(l, func(p Piece) error { return move(l.Mem, base+p.Dst, p.Src, p.Len) })
}

func scatter(l Launch) error {
	base := l.Args[0]
	return eachPiece(l, func(p Piece) error { return move(l.Mem, p.Dst, base+p.Src, p.Len) })
}

func eachPiece(l Launch, do func(Piece) error) error {
	table, count := gpu.Addr(l.Args[1]), l.Args[2]
	if table%8 != 0 && count != 0 {
		return gpu.ErrMisalignedAddress
	}
	for i := range count {
		segs, err := bytesOf(l.Mem, table+gpu.Addr(i*PieceSize), PieceSize)
		if err != nil {
			return err
		}
		raw := make([]byte, 0, PieceSize)
		for _, s := range segs {
			raw = append(raw, s...)
		}
		le := binary.LittleEndian
		if err := do(Piece{le.Uint64(raw), le.Uint64(raw[8:]), le.Uint64(raw[16:])}); err != nil {
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
