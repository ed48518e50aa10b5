package disk

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// pages is ordinary memory with a byte in it.
func pages(n int, b byte) []nvfs.Page {
	list := make([]nvfs.Page, n)
	for i := range list {
		list[i] = nvfs.Page{Mem: bytes.Repeat([]byte{b}, nvfs.BlockSize)}
	}
	return list
}

func join(list []nvfs.Page) (all []byte) {
	for _, p := range list {
		all = append(all, p.Mem...)
	}
	return all
}

// A driver that nvidia-fs does not know of works on ordinary memory: more pages
// than one call takes, and zeros behind the end of the file.
func TestOrdinaryMemory(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := New(nil, "nvme", "1")
	const n = vectors + 3
	out := pages(n, 0)
	for i := range out {
		out[i].Mem[i%nvfs.BlockSize] = byte(i) | 1
	}
	if err := d.Submit(&nvfs.Request{FD: int(f.Fd()), Write: true, Pages: out}); err != nil {
		t.Fatal(err)
	}
	const cut = 2*nvfs.BlockSize + 100
	if err := f.Truncate(n*nvfs.BlockSize - cut); err != nil {
		t.Fatal(err)
	}
	in := pages(n, 0xee)
	if err := d.Submit(&nvfs.Request{FD: int(f.Fd()), Pages: in}); err != nil {
		t.Fatal(err)
	}
	want := join(out)
	clear(want[len(want)-cut:])
	if !bytes.Equal(join(in), want) {
		t.Error("the bytes come back otherwise")
	}
	if err := d.Submit(&nvfs.Request{FD: -1, Pages: in}); err == nil {
		t.Error("a file that is not open")
	}
}

func TestAdvance(t *testing.T) {
	segs := [][]byte{{1, 2, 3}, {4, 5}, {6}}
	for n := range 7 {
		got := bytes.Join(advance(segs, n), nil)
		if want := []byte{1, 2, 3, 4, 5, 6}[n:]; !bytes.Equal(got, want) {
			t.Errorf("advance by %d: %v, want %v", n, got, want)
		}
	}
	if len(segs[0]) != 3 {
		t.Error("the list itself has changed")
	}
}
