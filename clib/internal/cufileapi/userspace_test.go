package cufileapi

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/cufile"
)

// An archive acts as the functions of a table: fs_type is 1, read is 2, write is 3.
type archive struct {
	ops    fsOps
	kind   []byte
	data   []byte
	most   int // how many bytes a call moves
	result int64
	signal bool // every other call is interrupted
	calls  int
}

func (a *archive) FSType(cmem.Ptr, cmem.Ptr) cmem.Ptr {
	if a.kind == nil {
		return 0
	}
	return cmem.PtrTo(&a.kind[0])
}

func (a *archive) FSTransfer(fn, _ cmem.Ptr, p []byte, off int64) int64 {
	if a.calls++; a.signal && a.calls%2 == 1 {
		return -int64(unix.EINTR)
	}
	if a.result != 0 {
		return a.result
	}
	at := a.data[min(int(off), len(a.data)):]
	p = p[:min(len(p), a.most)]
	if fn == 2 {
		return int64(copy(p, at))
	}
	return int64(copy(at, p))
}

func (a *archive) open(t *testing.T) *fileSystem {
	t.Helper()
	a.ops = fsOps{FSType: 1, Read: 2, Write: 3}
	fs, err := newFileSystem(a, 0x10, cmem.PtrTo(&a.ops))
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// A function that moves a few bytes per call, or is interrupted, is called until all
// have moved.
func TestUserSpaceMovesAll(t *testing.T) {
	a := &archive{kind: []byte("test\x00"), data: []byte("0123456789"), most: 3, signal: true}
	fs := a.open(t)
	p := make([]byte, 8)
	if n, err := fs.ReadAt(p, 1); n != 8 || err != nil || string(p) != "12345678" {
		t.Errorf("read: %d, %v, %q", n, err, p)
	}
	if n, err := fs.ReadAt(p, 6); n != 4 || err != io.EOF {
		t.Errorf("read across the end: %d, %v", n, err)
	}
	if n, err := fs.WriteAt([]byte("abcde"), 2); n != 5 || err != nil || !bytes.Equal(a.data, []byte("01abcde789")) {
		t.Errorf("write: %d, %v, %q", n, err, a.data)
	}
	if n, err := fs.WriteAt([]byte("abcde"), 8); n != 2 || !errors.Is(err, unix.EIO) {
		t.Errorf("write across the end: %d, %v", n, err)
	}
	if fs.Name() != "test handle 0x10" {
		t.Error(fs.Name())
	}
}

// The errno of a function is that of the transfer; a result that makes no sense is EIO.
func TestUserSpaceErrors(t *testing.T) {
	for result, want := range map[int64]unix.Errno{
		-int64(unix.ESTALE): unix.ESTALE,
		-4095:               4095,
		-4096:               unix.EIO,
		-1 << 63:            unix.EIO,
		9:                   unix.EIO,
		1<<63 - 1:           unix.EIO,
	} {
		fs := (&archive{kind: []byte("test\x00"), result: result}).open(t)
		p := make([]byte, 8)
		if n, err := fs.ReadAt(p, 0); n != 0 || Errno(err) != int32(want) {
			t.Errorf("read answers %d: %d, %v", result, n, err)
		}
		if n, err := fs.WriteAt(p, 0); n != 0 || Errno(err) != int32(want) {
			t.Errorf("write answers %d: %d, %v", result, n, err)
		}
	}
}

func TestUserSpaceTablesAreChecked(t *testing.T) {
	full := fsOps{FSType: 1, Read: 2, Write: 3}
	for name, tt := range map[string]struct {
		kind string
		ops  fsOps
		want cufile.Code
	}{
		"no fs_type": {"test\x00", fsOps{Read: 2, Write: 3}, cufile.InvalidValue},
		"no read":    {"test\x00", fsOps{FSType: 1, Write: 3}, cufile.InvalidValue},
		"no write":   {"test\x00", fsOps{FSType: 1, Read: 2}, cufile.InvalidValue},
		"NULL type":  {"", full, cufile.InvalidFileType},
		"empty type": {"\x00", full, cufile.InvalidFileType},
		"two lines":  {"a\nb\x00", full, cufile.InvalidFileType},
	} {
		a := &archive{ops: tt.ops}
		if tt.kind != "" {
			a.kind = []byte(tt.kind)
		}
		if _, err := newFileSystem(a, 0, cmem.PtrTo(&a.ops)); cufile.CodeOf(err) != tt.want {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if _, err := newFileSystem(&archive{}, 0, 0); cufile.CodeOf(err) != cufile.IONotSupported {
		t.Errorf("NULL table: %v", err)
	}
}
