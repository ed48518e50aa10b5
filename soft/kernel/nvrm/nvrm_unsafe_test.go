package nvrm_test

import (
	"bytes"
	"errors"
	"io/fs"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/nvrm"
	"github.com/culvert-io/culvert/internal/dev"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel/nvrm"
)

const (
	page    = 4096
	rw      = 3
	handle1 = abi.Handle(0xbeef0001)
	handle2 = abi.Handle(0xbeef0002)
)

func want(t *testing.T, what string, got, want abi.Status) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestSequence is the whole way, as it was recorded on hardware.
func TestSequence(t *testing.T) {
	m := newMachine(t)
	d := m.device(0)
	const size = 4 << 20
	a, fd := m.exported(d, size)
	s := m.session(0)
	h := handle1
	want(t, "import", s.importFD(fd, s.device, &h), abi.NV_OK)
	node := m.open("/dev/nvidia0")
	p := s.mapMemory(h, 0x11000, 3*page, node.Fd())
	if p.Status != abi.NV_OK || p.Flags != 0x1010000 || p.PLinearAddress == 0 {
		t.Fatalf("map: %+v", p)
	}
	mp, err := node.Mmap(0, 3*page, rw)
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("GPU!"), 3*page/4)
	if err := d.CopyIn(a+0x11000, content); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(dev.Bytes(mp), content) {
		t.Error("the mapping does not show what the GPU has")
	}
	copy(dev.Bytes(mp)[2*page:], "CPU!")
	got := make([]byte, 8)
	if err := d.CopyOut(got, a+0x11000+2*page); err != nil || string(got) != "CPU!GPU!" {
		t.Errorf("the GPU has %q, %v", got, err)
	}
	if err := mp.Unmap(); err != nil {
		t.Fatal(err)
	}
	want(t, "unmap", s.unmap(h, p.PLinearAddress), abi.NV_OK)
	want(t, "free", s.free(h), abi.NV_OK)
}

func TestVersion(t *testing.T) {
	m := newMachine(t)
	ctl := m.open("/dev/nvidiactl")
	q := abi.RMAPIVersion{Cmd: abi.NV_RM_API_VERSION_CMD_QUERY}
	for i := range q.VersionString {
		q.VersionString[i] = 'x' // what is there must not shine through
	}
	call(t, ctl, abi.IoctlCheckVersion, &q)
	s, _, _ := bytes.Cut(q.VersionString[:], []byte{0})
	if string(s) != nvrm.DefaultVersion || q.Reply != abi.NV_RM_API_VERSION_REPLY_RECOGNIZED {
		t.Errorf("version %q, reply %d", s, q.Reply)
	}
	for _, c := range []struct {
		cmd     uint32
		version string
		ok      bool
	}{
		{abi.NV_RM_API_VERSION_CMD_STRICT, "580.159.04", true},
		{abi.NV_RM_API_VERSION_CMD_STRICT, "580.142", false},
		{abi.NV_RM_API_VERSION_CMD_RELAXED, "580.142", true},
		{abi.NV_RM_API_VERSION_CMD_RELAXED, "590.1", false},
		{abi.NV_RM_API_VERSION_CMD_STRICT, strings.Repeat("5", 64), false},
	} {
		p := abi.RMAPIVersion{Cmd: c.cmd}
		copy(p.VersionString[:], c.version)
		err := ctl.Ioctl(abi.IoctlCheckVersion, unsafe.Pointer(&p))
		if (err == nil) != c.ok || err != nil && !errors.Is(err, syscall.EINVAL) {
			t.Errorf("check %q for %q: %v", rune(c.cmd), c.version, err)
		}
	}
}

func TestCards(t *testing.T) {
	m := newMachine(t, small(softgpu.H200()), small(softgpu.SmallBAR()))
	s := m.root()
	var cards [abi.MaxCards]abi.CardInfo
	cards[2].Valid = 1
	call(t, s.ctl, abi.IoctlCardInfo, &cards)
	if cards[0].Valid != 1 || cards[1].Valid != 1 || cards[2].Valid != 0 {
		t.Fatalf("cards: %+v", cards[:3])
	}
	if cards[0].FBSize != 256<<30 || cards[1].FBSize != 256<<20 || cards[1].MinorNumber != 1 {
		t.Errorf("cards: %+v", cards[:2])
	}
	if err := s.ctl.Ioctl(abi.IoctlCardInfo&^(0x3fff<<16)|72<<16, unsafe.Pointer(&cards)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("room for one card: %v", err)
	}
	id := abi.GPUGetIDInfoV2Params{GPUID: cards[1].GPUID}
	want(t, "id info", control(s, s.client, abi.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, &id, unsafe.Sizeof(id)), abi.NV_OK)
	if id.DeviceInstance != 1 {
		t.Errorf("the second card is instance %d", id.DeviceInstance)
	}
	id.GPUID = 0xdead
	want(t, "unknown id", control(s, s.client, abi.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, &id, unsafe.Sizeof(id)), abi.NV_ERR_INVALID_ARGUMENT)
}

func TestRequests(t *testing.T) {
	m := newMachine(t)
	ctl, node := m.open("/dev/nvidiactl"), m.open("/dev/nvidia0")
	var buf [4096]byte
	for name, err := range map[string]error{
		"unknown number":          ctl.Ioctl(0xC0104699, unsafe.Pointer(&buf)),
		"wrong size":              ctl.Ioctl(0xC0184629, unsafe.Pointer(&buf)),
		"client's request, GPU":   node.Ioctl(abi.IoctlAlloc, unsafe.Pointer(&buf)),
		"card info, GPU":          node.Ioctl(abi.IoctlCardInfo, unsafe.Pointer(&buf)),
		"register a GPU's node":   node.Ioctl(abi.IoctlRegisterFD, unsafe.Pointer(&abi.RegisterFD{CtlFD: int32(node.Fd())})),
		"register a file to self": ctl.Ioctl(abi.IoctlRegisterFD, unsafe.Pointer(&abi.RegisterFD{CtlFD: int32(ctl.Fd())})),
	} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v, want EINVAL", name, err)
		}
	}
	for _, n := range []dev.Node{ctl, node} {
		if err := n.Ioctl(abi.IoctlFree, nil); !errors.Is(err, syscall.EFAULT) {
			t.Errorf("no argument: %v, want EFAULT", err)
		}
	}
	call(t, node, abi.IoctlRegisterFD, &abi.RegisterFD{CtlFD: int32(ctl.Fd())})
	if err := node.Ioctl(abi.IoctlRegisterFD, unsafe.Pointer(&abi.RegisterFD{CtlFD: int32(ctl.Fd())})); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("second registration: %v", err)
	}
}

func TestStatuses(t *testing.T) {
	m := newMachine(t, small(softgpu.H200()), small(softgpu.H200()))
	d := m.device(0)
	s := m.root()
	want(t, "device without an open node", s.allocDevice(0, handle1), abi.NV_ERR_INSUFFICIENT_PERMISSIONS)
	m.open("/dev/nvidia0")
	m.open("/dev/nvidia1")
	want(t, "device that is not there", s.allocDevice(7, handle1), abi.NV_ERR_INVALID_CLASS)
	want(t, "device named like its client", s.allocDevice(0, s.client), abi.NV_ERR_INVALID_OBJECT_HANDLE)
	s.device = 0xbeef0080
	want(t, "device", s.allocDevice(0, s.device), abi.NV_OK)
	want(t, "second of that name", s.allocDevice(1, s.device), abi.NV_ERR_INSERT_DUPLICATE_NAME)
	want(t, "device of the other GPU", s.allocDevice(1, handle2), abi.NV_OK)

	class := abi.NVOS64Parameters{HRoot: s.client, HObjectParent: s.client, HObjectNew: handle1, HClass: 0x9999}
	call(t, s.ctl, abi.IoctlAlloc, &class)
	want(t, "unknown class", class.Status, abi.NV_ERR_INVALID_CLASS)

	var p abi.ImportObjectFromFDParams
	size := unsafe.Sizeof(p)
	importOne := uint32(abi.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD)
	want(t, "unknown control", control(s, s.client, 0x1234, &p, size), abi.NV_ERR_NOT_SUPPORTED)
	want(t, "control of no object", control(s, handle1, importOne, &p, size), abi.NV_ERR_OBJECT_NOT_FOUND)
	want(t, "control of a device", control(s, s.device, importOne, &p, size), abi.NV_ERR_NOT_SUPPORTED)
	want(t, "parameters of wrong size", control(s, s.client, importOne, &p, size-4), abi.NV_ERR_INVALID_PARAM_STRUCT)

	_, fd := m.exported(d, 2<<20)
	h := handle1
	want(t, "import of nothing", s.importFD(-1, s.device, &h), abi.NV_ERR_INVALID_PARAMETER)
	want(t, "import of another file", s.importFD(s.ctl.Fd(), s.device, &h), abi.NV_ERR_INVALID_PARAMETER)
	want(t, "import under nothing", s.importFD(fd, 0xdead, &h), abi.NV_ERR_OBJECT_NOT_FOUND)
	want(t, "import under the other GPU", s.importFD(fd, handle2, &h), abi.NV_ERR_INVALID_OBJECT_PARENT)
	want(t, "import", s.importFD(fd, s.device, &h), abi.NV_OK)
	want(t, "second import of that name", s.importFD(fd, s.device, &h), abi.NV_ERR_INSERT_DUPLICATE_NAME)
	want(t, "import under memory", s.importFD(fd, h, new(abi.Handle)), abi.NV_ERR_INVALID_OBJECT_PARENT)
	any := abi.Handle(0)
	want(t, "import with any name", s.importFD(fd, s.device, &any), abi.NV_OK)
	if any == 0 || any == h {
		t.Errorf("picked name %#x", any)
	}
	want(t, "free of nothing", s.free(0xdead), abi.NV_OK)

	other := m.root()
	other.device = s.device
	foreign := *other
	foreign.client = s.client
	want(t, "another file's client", foreign.free(h), abi.NV_ERR_INVALID_CLIENT)
	want(t, "no client", foreign.dup(s.device, &any, s.client, h), abi.NV_ERR_INVALID_CLIENT)
	want(t, "duplicate of a device", s.dup(s.device, new(abi.Handle), s.client, s.device), abi.NV_ERR_NOT_SUPPORTED)
	want(t, "duplicate from nobody", s.dup(s.device, new(abi.Handle), 0xc1d0ffff, h), abi.NV_ERR_INVALID_CLIENT)
	want(t, "duplicate of nothing", s.dup(s.device, new(abi.Handle), s.client, 0xdead), abi.NV_ERR_OBJECT_NOT_FOUND)
	want(t, "device", other.allocDevice(0, s.device), abi.NV_OK)
	copied := handle1
	want(t, "duplicate of another client's", other.dup(s.device, &copied, s.client, h), abi.NV_OK)
}

func TestMapRules(t *testing.T) {
	m := newMachine(t, small(softgpu.H200()), small(softgpu.H200()))
	d := m.device(0)
	const size = 2 << 20
	_, fd := m.exported(d, size)
	s := m.session(0)
	h := handle1
	want(t, "import", s.importFD(fd, s.device, &h), abi.NV_OK)
	node := m.open("/dev/nvidia0")
	if _, err := node.Mmap(0, page, rw); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("mmap before map: %v, want EINVAL", err)
	}
	for _, c := range []struct {
		what   string
		off, n uint64
		fd     int
		status abi.Status
	}{
		{"begins at the end", size, page, node.Fd(), abi.NV_ERR_INVALID_BASE},
		{"no length", 0, 0, node.Fd(), abi.NV_ERR_INVALID_LIMIT},
		{"too long", page, size, node.Fd(), abi.NV_ERR_INVALID_LIMIT},
		{"wraps around", page, ^uint64(page) + 1, node.Fd(), abi.NV_ERR_INVALID_LIMIT},
		{"odd offset", 1, page, node.Fd(), abi.NV_ERR_INVALID_ARGUMENT},
		{"no file", 0, page, -1, abi.NV_ERR_INVALID_ARGUMENT},
		{"a client's file", 0, page, s.ctl.Fd(), abi.NV_ERR_INVALID_ARGUMENT},
		{"a file of the other GPU", 0, page, m.open("/dev/nvidia1").Fd(), abi.NV_ERR_INVALID_ARGUMENT},
	} {
		want(t, c.what, s.mapMemory(h, c.off, c.n, c.fd).Status, c.status)
	}
	if n := m.rm.Mappings(); n != 0 {
		t.Errorf("%d mappings were left by refused requests", n)
	}
	want(t, "map", s.mapMemory(h, 0, 2*page, node.Fd()).Status, abi.NV_OK)
	want(t, "second map into a node", s.mapMemory(h, 0, page, node.Fd()).Status, abi.NV_ERR_STATE_IN_USE)
	for _, c := range []struct {
		what string
		off  int64
		n    int
		want error
	}{
		{"longer", 0, 3 * page, syscall.ENXIO},
		{"shorter", 0, page, syscall.ENXIO},
		{"offset", page, 2 * page, syscall.EINVAL},
		{"nothing", 0, 0, syscall.EINVAL},
	} {
		if _, err := node.Mmap(c.off, c.n, rw); !errors.Is(err, c.want) {
			t.Errorf("mmap, %s: %v, want %v", c.what, err, c.want)
		}
	}
	want(t, "unmap of an unknown address", s.unmap(h, 1), abi.NV_ERR_OBJECT_NOT_FOUND)
	want(t, "free of the client", s.free(s.client), abi.NV_OK)
	if n := m.rm.Mappings(); n != 0 {
		t.Errorf("%d mappings outlive their client", n)
	}
}

var sink byte

// faults reports whether reading b does.
func faults(b []byte) (fault bool) {
	defer func(before bool) {
		debug.SetPanicOnFault(before)
		fault = recover() != nil
	}(debug.SetPanicOnFault(true))
	sink = b[0]
	return false
}

// TestStaleMapping frees an object under its mapping in every possible way.
func TestStaleMapping(t *testing.T) {
	for name, end := range map[string]func(s *session, h abi.Handle, linear uint64){
		"unmap":       func(s *session, h abi.Handle, linear uint64) { s.unmap(h, linear) },
		"free":        func(s *session, h abi.Handle, _ uint64) { s.free(h) },
		"free device": func(s *session, _ abi.Handle, _ uint64) { s.free(s.device) },
		"free client": func(s *session, _ abi.Handle, _ uint64) { s.free(s.client) },
		"close":       func(s *session, _ abi.Handle, _ uint64) { s.ctl.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			_, fd := m.exported(m.device(0), 2<<20)
			s := m.session(0)
			h := handle1
			want(t, "import", s.importFD(fd, s.device, &h), abi.NV_OK)
			node := m.open("/dev/nvidia0")
			p := s.mapMemory(h, 0, 128<<10, node.Fd())
			mp, err := node.Mmap(0, 128<<10, rw)
			if err != nil {
				t.Fatal(err)
			}
			if faults(dev.Bytes(mp)) {
				t.Fatal("a live mapping faults")
			}
			end(s, h, p.PLinearAddress)
			if !faults(dev.Bytes(mp)) {
				t.Error("the memory can still be reached")
			}
			if err := mp.Unmap(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestObjectKeepsMemory: what was imported lives on after its owner freed it.
func TestObjectKeepsMemory(t *testing.T) {
	m := newMachine(t)
	d := m.device(0)
	before, _, err := d.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.Alloc(gpu.KindVirtual, 4<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.Export(a, 4<<20, gpu.ExportPosixFD)
	if err != nil {
		t.Fatal(err)
	}
	s := m.session(0)
	h := handle1
	want(t, "import", s.importFD(int(f.Fd()), s.device, &h), abi.NV_OK)
	if err := errors.Join(f.Close(), d.Free(a)); err != nil {
		t.Fatal(err)
	}
	if free, _, _ := d.MemInfo(); free != before-4<<20 {
		t.Errorf("%d bytes free under the object, want %d", free, before-4<<20)
	}
	want(t, "free", s.free(h), abi.NV_OK)
	if free, _, _ := d.MemInfo(); free != before {
		t.Errorf("%d bytes free, want %d", free, before)
	}
}

func TestSmallBAR(t *testing.T) {
	model := small(softgpu.SmallBAR())
	model.BAR1 = 4 << 20
	m := newMachine(t, model)
	_, fd := m.exported(m.device(0), 8<<20)
	s := m.session(0)
	h := handle1
	want(t, "import", s.importFD(fd, s.device, &h), abi.NV_OK)
	var linear []uint64
	for i := range uint64(3) {
		p := s.mapMemory(h, i<<20, 1<<20, m.open("/dev/nvidia0").Fd())
		want(t, "map", p.Status, abi.NV_OK)
		linear = append(linear, p.PLinearAddress)
	}
	node := m.open("/dev/nvidia0")
	want(t, "map more than is left", s.mapMemory(h, 0, 2<<20, node.Fd()).Status, abi.NV_ERR_NO_MEMORY)
	want(t, "unmap", s.unmap(h, linear[1]), abi.NV_OK)
	want(t, "map more than the gap", s.mapMemory(h, 0, 2<<20, node.Fd()).Status, abi.NV_ERR_NO_MEMORY)
	p := s.mapMemory(h, 7<<20, 1<<20, node.Fd())
	want(t, "map into the gap", p.Status, abi.NV_OK)
	if p.PLinearAddress != linear[1] {
		t.Errorf("mapped at %#x, the gap is at %#x", p.PLinearAddress, linear[1])
	}
}

func TestIPCHandle(t *testing.T) {
	m := newMachine(t)
	d := m.device(0)
	var addrs []gpu.Addr
	for range 3 {
		a, err := d.Alloc(gpu.KindDevice, 10_000, 0)
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, a)
	}
	s := m.session(0)
	for _, a := range addrs {
		b, err := d.IPCHandle(a)
		if err != nil {
			t.Fatal(err)
		}
		h := abi.ParseIPC(b)
		if err := d.CopyIn(a, []byte("this one")); err != nil {
			t.Fatal(err)
		}
		mem := abi.Handle(0)
		want(t, "duplicate", s.dup(s.device, &mem, h.HClient, h.HMemory), abi.NV_OK)
		node := m.open("/dev/nvidia0")
		off := uint64(h.Offset) &^ (page - 1)
		want(t, "map", s.mapMemory(mem, off, page, node.Fd()).Status, abi.NV_OK)
		mp, err := node.Mmap(0, page, rw)
		if err != nil {
			t.Fatal(err)
		}
		if got := dev.Bytes(mp)[uint64(h.Offset)-off:][:8]; string(got) != "this one" {
			t.Errorf("the handle leads to %q", got)
		}
		if err := mp.Unmap(); err != nil {
			t.Error(err)
		}
		want(t, "free", s.free(mem), abi.NV_OK)
	}
	b, err := d.IPCHandle(addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if err := d.Free(a); err != nil {
			t.Fatal(err)
		}
	}
	h := abi.ParseIPC(b)
	want(t, "duplicate of freed memory", s.dup(s.device, new(abi.Handle), h.HClient, h.HMemory), abi.NV_ERR_OBJECT_NOT_FOUND)
	for _, kind := range []gpu.Kind{gpu.KindVirtual, gpu.KindHost} {
		a, err := d.Alloc(kind, 4096, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.IPCHandle(a); !errors.Is(err, gpu.ErrInvalidValue) {
			t.Errorf("handle of %v memory: %v", kind, err)
		}
		if err := d.Free(a); err != nil {
			t.Error(err)
		}
	}
}

func TestProc(t *testing.T) {
	m := newMachine(t)
	b, err := fs.ReadFile(m.os.FS(), "proc/driver/nvidia/version")
	if err != nil || !strings.Contains(string(b), nvrm.DefaultVersion) {
		t.Errorf("version: %q, %v", b, err)
	}
	list, err := fs.ReadDir(m.os.FS(), "proc/driver/nvidia/gpus")
	if err != nil || len(list) != 1 {
		t.Errorf("gpus: %v, %v", list, err)
	}
}
