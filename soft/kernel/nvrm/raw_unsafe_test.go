package nvrm_test

import (
	"runtime"
	"testing"
	"testing/fstest"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/nvrm"
	"github.com/culvert-io/culvert/internal/dev"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/nvrm"
)

// A machine is what the tests of this package talk to, with bare requests.
type machine struct {
	t   *testing.T
	os  *kernel.OS
	drv *softgpu.Driver
	rm  *nvrm.Manager
}

func newMachine(t *testing.T, models ...softgpu.Model) *machine {
	t.Helper()
	if len(models) == 0 {
		models = []softgpu.Model{small(softgpu.H200())}
	}
	drv, err := softgpu.New(softgpu.Config{Models: models, Scatter: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	o := kernel.New(fstest.MapFS{})
	rm, err := nvrm.New(o, drv, "")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t, o, drv, rm}
	t.Cleanup(func() {
		if n := rm.Objects() + rm.Mappings() + o.OpenFiles(); n != 0 {
			t.Errorf("left behind: %d objects, %d mappings, %d open files", rm.Objects(), rm.Mappings(), o.OpenFiles())
		}
		if err := rm.Close(); err != nil {
			t.Error(err)
		}
		if err := drv.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// small is a model with little memory.
func small(m softgpu.Model) softgpu.Model {
	m.Memory = 64 << 20
	return m
}

func (m *machine) device(i int) nvrm.Device {
	m.t.Helper()
	d, err := m.drv.Open(i)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { d.Close() })
	return m.rm.Device(d)
}

func (m *machine) open(path string) dev.Node {
	m.t.Helper()
	n, err := dev.Of(m.os).Open(path)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { n.Close() })
	return n
}

func call[T any](t *testing.T, n dev.Node, req uintptr, p *T) {
	t.Helper()
	if err := n.Ioctl(req, unsafe.Pointer(p)); err != nil {
		t.Fatal(err)
	}
}

// session is a client with a device.
type session struct {
	*machine
	ctl            dev.Node
	client, device abi.Handle
}

func (m *machine) root() *session {
	m.t.Helper()
	s := &session{machine: m, ctl: m.open("/dev/nvidiactl")}
	p := abi.NVOS64Parameters{HClass: abi.NV01_ROOT}
	call(m.t, s.ctl, abi.IoctlAlloc, &p)
	if p.Status != 0 || p.HObjectNew&0xfff00000 != 0xc1d00000 || p.HClass != abi.NV01_ROOT_CLIENT {
		m.t.Fatalf("root client: %+v", p)
	}
	s.client = p.HObjectNew
	return s
}

func (s *session) allocDevice(instance uint32, h abi.Handle) abi.Status {
	s.t.Helper()
	a := abi.NV0080AllocParameters{DeviceID: instance, HClientShare: s.client, VAMode: 2}
	var pin runtime.Pinner
	pin.Pin(&a)
	defer pin.Unpin()
	p := abi.NVOS64Parameters{
		HRoot: s.client, HObjectParent: s.client, HObjectNew: h, HClass: abi.NV01_DEVICE_0,
		PAllocParms: uint64(uintptr(unsafe.Pointer(&a))), ParamsSize: uint32(unsafe.Sizeof(a)),
	}
	call(s.t, s.ctl, abi.IoctlAlloc, &p)
	return p.Status
}

// session opens client and device of GPU i.
func (m *machine) session(i uint32) *session {
	m.t.Helper()
	s := m.root()
	m.open("/dev/nvidia" + string(rune('0'+i)))
	s.device = 0xbeef0080
	if status := s.allocDevice(i, s.device); status != 0 {
		m.t.Fatalf("device: %v", status)
	}
	return s
}

func control[T any](s *session, object abi.Handle, cmd uint32, params *T, size uintptr) abi.Status {
	s.t.Helper()
	var pin runtime.Pinner
	pin.Pin(params)
	defer pin.Unpin()
	p := abi.NVOS54Parameters{
		HClient: s.client, HObject: object, Cmd: cmd,
		Params: uint64(uintptr(unsafe.Pointer(params))), ParamsSize: uint32(size),
	}
	call(s.t, s.ctl, abi.IoctlControl, &p)
	return p.Status
}

func (s *session) importFD(fd int, parent abi.Handle, h *abi.Handle) abi.Status {
	s.t.Helper()
	p := abi.ImportObjectFromFDParams{FD: int32(fd), Object: abi.ExportObject{Type: 1, HDevice: s.device, HParent: parent, HObject: *h}}
	status := control(s, s.client, abi.NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD, &p, unsafe.Sizeof(p))
	*h = p.Object.HObject
	return status
}

func (s *session) mapMemory(mem abi.Handle, off, n uint64, fd int) abi.NVOS33Parameters {
	s.t.Helper()
	p := abi.NVOS33ParametersWithFD{
		Params: abi.NVOS33Parameters{HClient: s.client, HDevice: s.device, HMemory: mem, Offset: off, Length: n},
		FD:     int32(fd),
	}
	call(s.t, s.ctl, abi.IoctlMapMemory, &p)
	return p.Params
}

func (s *session) unmap(mem abi.Handle, linear uint64) abi.Status {
	s.t.Helper()
	p := abi.NVOS34Parameters{HClient: s.client, HDevice: s.device, HMemory: mem, PLinearAddress: linear}
	call(s.t, s.ctl, abi.IoctlUnmapMemory, &p)
	return p.Status
}

func (s *session) free(h abi.Handle) abi.Status {
	s.t.Helper()
	p := abi.NVOS00Parameters{HRoot: s.client, HObjectParent: s.device, HObjectOld: h}
	call(s.t, s.ctl, abi.IoctlFree, &p)
	return p.Status
}

func (s *session) dup(parent abi.Handle, h *abi.Handle, client, object abi.Handle) abi.Status {
	s.t.Helper()
	p := abi.NVOS55Parameters{HClient: s.client, HParent: parent, HObject: *h, HClientSrc: client, HObjectSrc: object}
	call(s.t, s.ctl, abi.IoctlDupObject, &p)
	*h = p.HObject
	return p.Status
}

// exported allocates n bytes of virtual memory and a descriptor for them.
func (m *machine) exported(d gpu.Device, n uint64) (gpu.Addr, int) {
	m.t.Helper()
	a, err := d.Alloc(gpu.KindVirtual, n, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	f, err := d.Export(a, n, gpu.ExportPosixFD)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { f.Close() })
	return a, int(f.Fd())
}
