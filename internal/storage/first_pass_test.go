package storage

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
)

// TestFirstPassIsShared: all opens of a file share its first pass, which ends when one of
// them reads what another has read around the cache, and not before.
func TestFirstPassIsShared(t *testing.T) {
	a := openPass(fileID{"1:1", 1})
	b, other := openPass(fileID{"1:1", 1}), openPass(fileID{"1:1", 2})
	for off := int64(0); off < gib; off += 256 << 10 { // two readers, a half each
		p := []*firstPass{a, b}[off*2/gib]
		if p.around(off, 256<<10); p.over() {
			t.Fatalf("at %d: over", off)
		}
	}
	b.around(3*gib, 4*mib)
	if other.around(0, 4*mib); a.over() || other.over() {
		t.Error("over too early")
	}
	if b.around(100*mib+4096, 4*mib); !a.over() || other.over() {
		t.Error("what another open has read is not noticed")
	}
	closePass(fileID{"1:1", 1}, a)
	if c := openPass(fileID{"1:1", 1}); !c.over() {
		t.Error("forgotten while the file is open")
	}
	for _, id := range []fileID{{"1:1", 1}, {"1:1", 1}, {"1:1", 2}} {
		closePass(id, passes[id])
	}
}

// TestFirstPassIsRemembered: a file that is opened for each pass has a second one. Files
// that went through the cache need not be remembered, and of others only the last.
func TestFirstPassIsRemembered(t *testing.T) {
	before := len(passes)
	read := func(inode uint64, around bool) (over bool) {
		id := fileID{"1:2", inode}
		p := openPass(id)
		if around {
			p.around(0, 4*mib)
		}
		over = p.over()
		closePass(id, p)
		return over
	}
	if read(1, false) || read(1, true) || !read(1, true) {
		t.Error("the second pass is not told from the first")
	}
	for i := range uint64(passesKept) {
		read(2+i, true)
	}
	if n := len(passes); n > before+passesKept {
		t.Errorf("%d files are remembered", n)
	}
	if read(1, true) {
		t.Error("the file that was closed first is remembered, too")
	}
	if !read(passesKept+1, true) {
		t.Error("the file that was closed last is not remembered")
	}
	clear(passes)
}

// TestCloseWaitsForReadAhead: when Close returns, nothing is read ahead any more, and the
// pass is forgotten.
func TestCloseWaitsForReadAhead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	opened, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	f, err := Adopt(int(opened.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		read, closed := make(chan struct{}), make(chan struct{})
		f.Reads().AskBehind(0, 100, nil, func(int64, int64) error { <-read; return nil })
		go func() { f.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed while it was read ahead")
		default:
		}
		close(read)
		<-closed
	})
	if p := passes[f.id()]; p != nil {
		t.Errorf("the pass is remembered: %+v", p)
	}
}
