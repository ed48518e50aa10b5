package devapi

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/abi/gdrdrv"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft"
)

// A fixture is a software machine, memory of its GPU, and the API of its nodes.
type fixture struct {
	*testing.T
	*API
	m    *soft.Machine
	addr gpu.Addr
}

const size = 4 * gdrdrv.GPU_PAGE_SIZE

func newFixture(t *testing.T) *fixture {
	t.Helper()
	m, err := soft.New(soft.Config{Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	d, err := m.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	addr, err := d.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		t.Fatal(err)
	}
	maps := func(fd int, off int64, n uint64, prot int) (dev.Mapping, error) {
		v, err := m.GPU.MapExport(fd, off, n, prot)
		if err != nil {
			return nil, err
		}
		return v, nil
	}
	w := &fixture{T: t, m: m, addr: addr, API: New(func() (dev.OS, error) { return dev.Of(m), nil }, maps)}
	t.Cleanup(func() {
		if err := errors.Join(m.InUse(), d.Free(addr), d.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *fixture) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// node opens a path as the C half does.
func (w *fixture) node(path string, flags int32) (fd int, id handle.ID, err error) {
	text, out := append([]byte(path), 0), new(handle.ID)
	n, err := w.Open(cmem.PtrTo(&text[0]), flags, cmem.PtrTo(out))
	return int(n), *out, err
}

// pin pins and maps all memory.
func (w *fixture) pin(id handle.ID) (p *gdrdrv.PinBufferParams, at uint64) {
	w.Helper()
	p = &gdrdrv.PinBufferParams{Addr: uint64(w.addr), Size: size}
	w.must(w.Ioctl(id, gdrdrv.GDRDRV_IOC_PIN_BUFFER, cmem.PtrTo(p)))
	n, err := w.Mmap(id, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, int64(p.Handle)*gdrdrv.HOST_PAGE)
	w.must(err)
	return p, uint64(n)
}

// The last descriptor closes the node.
func TestDescriptors(t *testing.T) {
	w := newFixture(t)
	fd, id, err := w.node(gdrdrv.Path, unix.O_RDWR|unix.O_CLOEXEC)
	w.must(err)
	defer unix.Close(fd)
	w.must(w.Dup(id))
	w.must(w.Close(id))
	v := new(gdrdrv.GetVersionParams)
	w.must(w.Ioctl(id, gdrdrv.GDRDRV_IOC_GET_VERSION, cmem.PtrTo(v)))
	if v.GdrdrvVersion != gdrdrv.GDRDRV_VERSION {
		t.Errorf("version %#x", v.GdrdrvVersion)
	}
	w.must(w.Close(id))
	for name, err := range map[string]error{"ioctl": w.Ioctl(id, 0, 0), "dup": w.Dup(id), "close": w.Close(id)} {
		if !errors.Is(err, syscall.EBADF) {
			t.Errorf("%s after the last close: %v", name, err)
		}
	}
	if _, err := w.Mmap(id, size, unix.PROT_READ, unix.MAP_SHARED, 0); !errors.Is(err, syscall.EBADF) {
		t.Errorf("mmap after the last close: %v", err)
	}
}

// A placeholder is a sealed file of its own: its contents cannot change.
func TestPlaceholders(t *testing.T) {
	w := newFixture(t)
	inodes := map[uint64]bool{}
	for range 2 {
		fd, id, err := w.node(gdrdrv.Path, unix.O_RDWR)
		w.must(err)
		var st unix.Stat_t
		w.must(unix.Fstat(fd, &st))
		inodes[st.Ino] = true
		if _, err := unix.Write(fd, []byte("x")); !errors.Is(err, syscall.EPERM) {
			t.Errorf("write: %v", err)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags != 0 {
			t.Errorf("flags %#x, %v", flags, err)
		}
		defer func() { w.must(errors.Join(w.Close(id), unix.Close(fd))) }()
	}
	if len(inodes) != 2 {
		t.Error("two placeholders are one file")
	}
	fd, id, err := w.node("/proc/driver/nvidia-fs/version", unix.O_RDONLY)
	w.must(err)
	defer unix.Close(fd)
	text := make([]byte, 100)
	if n, err := unix.Read(fd, text); err != nil || id != 0 || string(text[:n]) != "version: 2.28\n" {
		t.Errorf("read %q of %v, %v", text[:n], id, err)
	}
}

func TestOpenErrors(t *testing.T) {
	w := newFixture(t)
	for path, want := range map[string]error{
		"/dev/nvidia-fs99": syscall.ENOENT, "/dev/null": syscall.ENOENT, "/proc/driver/gdrdrv/absent": syscall.ENOENT,
	} {
		if _, _, err := w.node(path, unix.O_RDONLY); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	if _, _, err := w.node("/proc/driver/gdrdrv/params", unix.O_RDWR); !errors.Is(err, syscall.EACCES) {
		t.Errorf("writing to a file: %v", err)
	}
	if n := w.m.Kernel().OpenFiles(); n != 0 {
		t.Errorf("%d files are open", n)
	}
}

// A mapping ends when the last of its pages is unmapped, in whatever parts.
func TestUnmapInParts(t *testing.T) {
	w := newFixture(t)
	fd, id, err := w.node(gdrdrv.Path, unix.O_RDWR)
	w.must(err)
	defer unix.Close(fd)
	p, at := w.pin(id)
	mapped := func() bool {
		i := &gdrdrv.GetInfoParamsV2{Handle: p.Handle}
		w.must(w.Ioctl(id, gdrdrv.GDRDRV_IOC_GET_INFO_V2, cmem.PtrTo(i)))
		return i.MappingType == gdrdrv.GDR_MAPPING_TYPE_WC
	}
	for _, part := range [][2]uint64{{page, page}, {page, 1}, {0, page}, {3 * page, size - 3*page}} {
		w.must(w.Munmap(at+part[0], part[1]))
		if !mapped() {
			t.Fatalf("after part %v nothing is mapped", part)
		}
	}
	w.must(w.Munmap(at, size))
	if mapped() {
		t.Error("all parts are unmapped, the mapping is left")
	}
	for _, bad := range [][2]uint64{{at + 1, page}, {at, 0}, {at, -page + 1}} {
		if err := w.Munmap(bad[0], bad[1]); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("munmap %#x: %v", bad, err)
		}
	}
	w.must(w.Close(id))
}

// A mapping keeps its node open, and ends with it.
func TestMappingOutlivesClose(t *testing.T) {
	w := newFixture(t)
	fd, id, err := w.node(gdrdrv.Path, unix.O_RDWR)
	w.must(err)
	_, at := w.pin(id)
	w.must(errors.Join(w.Close(id), unix.Close(fd)))
	if w.m.P2P().Live() != 1 {
		t.Error("the pin went with the descriptor")
	}
	w.must(w.Munmap(at, size))
}

func TestMmapErrors(t *testing.T) {
	w := newFixture(t)
	fd, id, err := w.node(gdrdrv.Path, unix.O_RDONLY)
	w.must(err)
	defer unix.Close(fd)
	for _, tt := range []struct {
		n           uint64
		prot, flags int32
		want        error
	}{
		{0, unix.PROT_READ, unix.MAP_SHARED, syscall.EINVAL},
		{1 << 63, unix.PROT_READ, unix.MAP_SHARED, syscall.EINVAL},
		{page, unix.PROT_READ, unix.MAP_PRIVATE, syscall.EINVAL},
		{page, unix.PROT_READ, unix.MAP_SHARED | unix.MAP_FIXED, syscall.EINVAL},
		{page, unix.PROT_WRITE, unix.MAP_SHARED, syscall.EACCES},
	} {
		if _, err := w.Mmap(id, tt.n, tt.prot, tt.flags, 0); !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	w.must(w.Close(id))
}

func TestMode(t *testing.T) {
	w := newFixture(t)
	for path, want := range map[string]int64{gdrdrv.Path: nodeMode, "/proc/driver/nvidia-fs/stats": fileMode, "/proc/driver/nvidia-fs": dirMode} {
		text := append([]byte(path), 0)
		if got, err := w.Mode(cmem.PtrTo(&text[0])); err != nil || got != want {
			t.Errorf("%s: mode %#o, %v", path, got, err)
		}
	}
}
