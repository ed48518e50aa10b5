package cmem_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
)

func TestLoadStore(t *testing.T) {
	var word [4]uint32
	p := cmem.PtrTo(&word[0])
	cmem.Store(cmem.At[uint32](p, 2), uint32(7))
	if word[2] != 7 || cmem.Load[uint32](p+8) != 7 {
		t.Errorf("stored at 2: %v", word)
	}
}

func TestLoadWords(t *testing.T) {
	a, b, c := uint64(3), uint64(5), [2]uint64{7, 9}
	got := cmem.LoadWords(cmem.PtrTo(&a), cmem.PtrTo(&c[1]), cmem.PtrTo(&b))
	if got != [8]uint64{3, 9, 5} {
		t.Errorf("%v", got)
	}
	if got := cmem.LoadWords(); got != [8]uint64{} {
		t.Errorf("none are %v", got)
	}
}

// The last word is read and written back, the others are only read.
func TestExchangeWords(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	mem[8] = 9
	if err := unix.Mprotect(mem, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	a, last := uint64(3), ^uint64(0)-5
	got := cmem.ExchangeWords(cmem.PtrTo(&a), cmem.PtrTo(&mem[8]), cmem.PtrTo(&last))
	if got != [8]uint64{3, 9, ^uint64(0) - 5} || last != ^uint64(0)-5 {
		t.Errorf("%v, and the last is %d", got, last)
	}
	if got := cmem.ExchangeWords(); got != [8]uint64{} {
		t.Errorf("none are %v", got)
	}
}

// A Trust sees what the words are now, and the CPU only accesses pages that the kernel
// has exchanged words on: the test does not ask Go to turn faults into panics.
func TestTrust(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 3*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(mem[8192:], unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	var trust cmem.Trust
	at := func(i int) cmem.Ptr { return cmem.PtrTo(&mem[i]) }
	for i := range byte(3) {
		mem[0], mem[16], mem[4096] = i, i+1, i+2
		if got := trust.ExchangeWords(at(0), at(16), at(4096)); got != [8]uint64{uint64(i), uint64(i) + 1, uint64(i) + 2} || mem[4096] != i+2 {
			t.Errorf("%v, now %d", got, mem[4096])
		}
	}
	for name, from := range map[string][]cmem.Ptr{
		"unknown page":  {at(0), 0x10000, at(4096)},
		"not writable":  {at(4096), at(8192)},
		"over the edge": {at(0), at(8192 - 4)}, // the last half is on a page that cannot be written
	} {
		func() {
			defer func() {
				if _, ok := cmem.Fault(recover()); !ok {
					t.Errorf("%s: no panic", name)
				}
			}()
			trust.ExchangeWords(at(0), at(8192), at(4096))
			trust.ExchangeWords(from...)
		}()
	}
}

func TestString(t *testing.T) {
	text := []byte("strrev\x00and more")
	p := cmem.PtrTo(&text[0])
	if s, ok := cmem.String(p, 64); s != "strrev" || !ok {
		t.Errorf("String = %q, %v", s, ok)
	}
	if s, ok := cmem.String(p, 6); s != "strrev" || !ok {
		t.Errorf("String with just enough room = %q, %v", s, ok)
	}
	if s, ok := cmem.String(p, 5); ok {
		t.Errorf("String took %q for a string of at most 5", s)
	}
}

func TestPutString(t *testing.T) {
	for n, want := range map[int]string{0: "....", 1: "\x00...", 3: "ab\x00.", 4: "abc\x00"} {
		room := []byte("....")
		if cmem.PutString(cmem.PtrTo(&room[0]), n, "abc"); string(room) != want {
			t.Errorf("PutString into %d bytes: %q, want %q", n, room, want)
		}
	}
}

// TestWild: memory that is not there is a panic with its address. The test does not ask
// Go to turn faults into panics: the CPU must not see the access.
func TestWild(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(mem[4096:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	copy(mem[4090:], "last\x00")
	base := cmem.PtrTo(&mem[0])
	constant, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	read := cmem.PtrTo(&constant[0])
	for name, c := range map[string]struct {
		access func()
		at     cmem.Ptr
	}{
		"load":         {func() { cmem.Load[uint32](0x10000) }, 0x10000},
		"words":        {func() { cmem.LoadWords(base, base+8, 0x10000, base) }, 0x10000},
		"far word":     {func() { cmem.LoadWords(base, 1<<63) }, 1 << 63},
		"exchange":     {func() { cmem.ExchangeWords(base, 0x10000, base) }, 0x10000},
		"not writable": {func() { cmem.ExchangeWords(base, read) }, read},
		"first page":   {func() { cmem.Load[uint32](8) }, 8},
		"store":        {func() { cmem.Store(cmem.Ptr(0x10000), uint64(1)) }, 0x10000},
		"touch":        {func() { cmem.Touch(^cmem.Ptr(0)) }, ^cmem.Ptr(0)},
		"end of array": {func() { cmem.LoadAll[uint64](base+4080, 4) }, base + 4096},
		"protected":    {func() { cmem.StoreAll(base+4096, []byte("x")) }, base + 4096},
		"string":       {func() { cmem.String(base+4094, 100); cmem.String(base+4095, 100) }, base + 4096},
	} {
		func() {
			defer func() {
				if at, ok := cmem.Fault(recover()); !ok || at != uintptr(c.at) {
					t.Errorf("%s: fault at %#x, %t; want %#x", name, at, ok, c.at)
				}
			}()
			mem[4095] = 1
			c.access()
		}()
	}
	mem[4095] = 0
	if s, ok := cmem.String(base+4090, 4096); s != "last" || !ok {
		t.Errorf("a string at the end of its page: %q, %t", s, ok)
	}
}
