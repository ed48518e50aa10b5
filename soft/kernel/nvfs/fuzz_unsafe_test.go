package nvfs_test

import (
	"encoding/binary"
	"testing"
	"unsafe"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// Whatever bytes a program sends, the emulated module answers, and nothing is left when the
// program has gone. Some words are replaced by addresses that mean something, so
// that requests get further than the first check.
func FuzzIoctl(f *testing.F) {
	io := abi.IOArgs{Size: page, Inum: 1, Bits: abi.BitSync}
	m := abi.MapArgs{Size: page, SbufBlock: 16}
	for req, encode := range map[uint8]func([]byte){2: io.Encode, 3: m.Encode, 4: io.Encode, 8: (&abi.BatchArgs{Nents: 2}).Encode} {
		var a abi.Arg
		encode(a[:])
		f.Add(req, uint8(0b11111), a[:])
		f.Add(req, uint8(0), a[:])
	}
	f.Fuzz(func(t *testing.T, req, known uint8, b []byte) {
		w := newFixture(t, true, nvfs.Config{Callback: true})
		n := w.node()
		s := w.newShadow(n, w.file("a", page, map[int64][]byte{0: pattern(7, page)}))
		fresh, err := n.Mmap(0, page, rw)
		w.check(err)
		var a abi.Arg
		copy(a[:], b)
		words := map[int]uint64{0: s.args.CPUVAddr, 16: address(w.memory(4096)), 24: s.gpu, 32: address(s.meta), 40: s.args.Inum}
		if req == 3 {
			words[16] = uint64(fresh.Addr())
		}
		bit := 0
		for _, off := range []int{0, 16, 24, 32, 40} {
			if v := words[off]; known>>bit&1 == 1 && (req != 3 || off != 0 && off != 40) && (req != 8 || off == 16) {
				binary.LittleEndian.PutUint64(a[off:], v)
			}
			bit++
		}
		if req == 3 && known>>3&1 == 0 {
			binary.LittleEndian.PutUint64(a[32:], 0) // no page of somebody else's
		}
		if req == 8 && known>>1&1 == 0 {
			binary.LittleEndian.PutUint64(a[16:], 0)
		}
		_ = n.Ioctl(0x40047400|uintptr(req), unsafe.Pointer(&a)) // any answer will do
		w.m.Idle()
		w.check(fresh.Unmap())
		w.check(s.m.Unmap())
		w.check(n.Close())
		w.close()
	})
}
