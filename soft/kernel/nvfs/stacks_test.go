package nvfs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	client "github.com/culvert-io/culvert/internal/dev/nvfs"
	softblock "github.com/culvert-io/culvert/soft/block"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// TestStacks: what nvidia-fs does above other layers than a drive, as it was recorded.
// On some of them it reports wrong bytes as a success, and writes the shadow buffer
// into the file: a client must not get here.
func TestStacks(t *testing.T) {
	const size = 256 << 10
	for _, c := range []struct {
		stack string
		read  error
		right bool // the bytes in GPU memory, if the read succeeds
		write error
	}{
		{"", nil, true, nil},
		{"raid0", nil, true, nil},
		{"raid1", nil, true, nil},
		{"linear", nil, true, nil},
		{"crypt", nil, false, client.ErrNotDirect},
		{"linear+crypt", nil, false, client.ErrNotDirect},
		{"raid5", nil, true, client.ErrNotDirect},
		{"compress", client.ErrNotDirect, false, client.ErrNotDirect},
		{"btrfs", syscall.ESTALE, false, syscall.ESTALE},
		{"virtio", client.ErrNotDirect, false, client.ErrNotDirect},
		{"raid0-half", client.ErrNotDirect, false, client.ErrNotDirect},
		{"raid1-half", client.ErrNotDirect, false, nil}, // reads of one drive, writes of both
	} {
		t.Run(c.stack, func(t *testing.T) {
			s := newSession(t, true, nvfs.Config{}, size, page)
			layers, err := softblock.ParseLayers(c.stack)
			s.check(err)
			s.drive.Below(layers)
			data := pattern(7, size)
			path := s.file("a", size, map[int64][]byte{0: data})
			f := s.open(path)
			s.Write(s.addr, bytes.Repeat([]byte{0xee}, size))
			n, err := s.b.Read(f, 0, size, 0)
			if !errors.Is(err, c.read) || c.read == nil && n != size {
				t.Errorf("read %d bytes, %v, want %v", n, err, c.read)
			}
			if got := s.Read(s.addr, size); c.read == nil && bytes.Equal(got, data) != c.right {
				t.Errorf("right bytes in GPU memory: %v, want %v", !c.right, c.right)
			}
			s.Write(s.addr, pattern(9, size))
			n, err = s.b.Write(f, 0, size, 0)
			if !errors.Is(err, c.write) || c.write == nil && n != size {
				t.Errorf("wrote %d bytes, %v, want %v", n, err, c.write)
			}
			now, err := os.ReadFile(path)
			s.check(err)
			if written := bytes.Equal(now, pattern(9, size)); written != (c.write == nil) {
				t.Errorf("the file has what was written: %v", written)
			}
			s.close()
		})
	}
}

// TestHalfMirror: of a mirror with one drive whose driver has no hooks, that drive takes
// the shadow buffer's bytes, and nothing says so. A read that it serves is a hole.
func TestHalfMirror(t *testing.T) {
	const size = 64 << 10
	s := newSession(t, true, nvfs.Config{}, size, page)
	layers, err := softblock.ParseLayers("raid1-half")
	s.check(err)
	s.drive.Below(layers)
	path := s.file("a", size, map[int64][]byte{0: pattern(7, size)})
	f := s.open(path)
	file, err := os.Open(path)
	s.check(err)
	defer file.Close()
	divergent := func() int {
		n, err := s.drive.Divergent(int(file.Fd()))
		s.check(err)
		return n
	}
	s.Write(s.addr, pattern(9, size))
	if n, err := s.b.Write(f, 0, size, 0); n != size || err != nil || divergent() != size/4096 {
		t.Errorf("wrote %d bytes, %v; %d blocks of the drives differ", n, err, divergent())
	}
	if n, err := s.b.Read(f, 0, size, 0); n != size || err != nil || !bytes.Equal(s.Read(s.addr, size), pattern(9, size)) {
		t.Errorf("the drive with hooks: %d bytes, %v", n, err)
	}
	if _, err := s.b.ReadOnce(f, 0, size, 0); !errors.Is(err, client.ErrNotDirect) {
		t.Errorf("the drive without hooks: %v", err)
	}
	s.check(os.WriteFile(path, pattern(5, size), 0o600)) // by the host: both drives
	if n := divergent(); n != 0 {
		t.Errorf("%d blocks differ after the host has written", n)
	}

	// The drive without hooks leaves what it reads in the shadow buffer, and takes it from there.
	if _, err := s.b.Read(f, 0, size, 0); err != nil {
		t.Error(err)
	}
	if _, err := s.b.ReadOnce(f, 0, size, 0); !errors.Is(err, client.ErrNotDirect) {
		t.Errorf("the drive without hooks: %v", err)
	}
	s.Write(s.addr, pattern(5, size))
	if n, err := s.b.Write(f, 0, size, 0); n != size || err != nil || divergent() != 0 {
		t.Errorf("wrote %d bytes, %v; %d blocks of the drives differ", n, err, divergent())
	}
	if n, err := s.b.WriteScrubbed(f, 0, size, 0); n != size || err != nil || divergent() != size/4096 {
		t.Errorf("wrote %d bytes, %v; %d blocks of the drives differ", n, err, divergent())
	}
	s.close()
}

// TestDiedComesAfterTheAnswer: a READ whose memory is freed returns an error before the
// end-fence page says why.
func TestDiedComesAfterTheAnswer(t *testing.T) {
	w := newFixture(t, true, nvfs.Config{Callback: true})
	n := w.node()
	s := w.newShadow(n, w.file("a", 1<<20, map[int64][]byte{0: pattern(7, 1<<20)}))
	answered, revoked := make(chan struct{}), make(chan struct{})
	chunks := 0
	w.Points.Hook(func(name string, _ uint64) {
		switch name {
		case "nvfs.chunk":
			if chunks++; chunks != 2 {
				return
			}
			go func() { w.RM.Revoke(); close(revoked) }()
			for state := abi.IO_IN_PROGRESS; state != abi.IO_CALLBACK_REQ; runtime.Gosched() {
				state, _ = w.m.State(s.args.CPUVAddr)
			}
		case "nvfs.callback.drained":
			<-answered
		}
	})
	if k, err := s.read(func(a *abi.IOArgs) { a.Size = 4 * page }); k != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("read: %d, %v, want EIO", k, err)
	}
	state := func() uint32 { return binary.LittleEndian.Uint32(s.meta[abi.MetaState:]) }
	if state() == abi.META_DIED {
		t.Error("the page says DIED before the answer was read")
	}
	close(answered)
	<-revoked
	if state() != abi.META_DIED {
		t.Errorf("the page has state %d, want DIED", state())
	}
	w.Points.Hook(nil)
	w.check(errors.Join(s.m.Unmap(), n.Close()))
	w.close()
}
