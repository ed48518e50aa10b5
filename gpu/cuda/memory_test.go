//go:build linux && (amd64 || arm64) && !nodl

package cuda_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

func TestAllocAndFree(t *testing.T) {
	f := openFake(t)
	d := f.device()
	for _, tt := range []struct {
		kind gpu.Kind
		n    uint64
		f    gpu.Flags
		want []string
	}{
		{gpu.KindDevice, 4096, 0, []string{"cuMemAlloc_v2(4096)", "cuMemFree_v2()"}},
		{gpu.KindHost, 5, gpu.HostPortable | gpu.HostWriteCombined, []string{"cuMemHostAlloc(5, 5)", "cuMemFreeHost()"}},
		{gpu.KindManaged, 6, 0, []string{"cuMemAllocManaged(6, 1)", "cuMemFree_v2()"}},
		{gpu.KindManaged, 6, gpu.ManagedHost, []string{"cuMemAllocManaged(6, 2)", "cuMemFree_v2()"}},
		{gpu.KindVirtual, 2<<20 + 1, 0, []string{
			"cuMemGetAllocationGranularity(0)",
			"cuMemCreate(4194304, type 1 handles 1 location 1 1 rdma 1 usage 0, 0)",
			"cuMemAddressReserve(4194304, 0, 0, 0)",
			"cuMemMap(0x40000000000, 4194304, 0, 0xabc, 0)",
			"cuMemSetAccess(0x40000000000, 4194304, location 1 1 flags 3, 1)",
			"cuMemRelease(0xabc)",
			"cuCtxSynchronize()",
			"cuMemUnmap(0x40000000000, 4194304)",
			"cuMemAddressFree(0x40000000000, 4194304)",
		}},
	} {
		t.Run(fmt.Sprint(tt.kind, tt.f), func(t *testing.T) {
			var a gpu.Addr
			got := f.logged(func() {
				var err error
				if a, err = d.Alloc(tt.kind, tt.n, tt.f); err != nil {
					t.Fatal(err)
				}
				if err := d.Free(a); err != nil {
					t.Error(err)
				}
			})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			again := f.logged(func() {
				if err := d.Free(a); !errors.Is(err, gpu.ErrInvalidValue) {
					t.Errorf("second free: %v", err)
				}
			})
			if len(again) != 0 {
				t.Errorf("the second free reached the driver: %q", again)
			}
		})
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	f.wantNothingLive()
}

// Whatever step fails, nothing is left behind.
func TestVirtualFailures(t *testing.T) {
	f := openFake(t)
	d := f.device()
	fds := openFDs(t)
	file := must(os.Create(filepath.Join(t.TempDir(), "fd")))(t)
	file.Close()
	for _, step := range []string{
		"cuMemGetAllocationGranularity", "cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemRelease",
	} {
		f.answer(step, gpu.ErrOutOfMemory, 0)
		if _, err := d.Alloc(gpu.KindVirtual, 1, 0); !errors.Is(err, gpu.ErrOutOfMemory) {
			t.Errorf("%s: %v", step, err)
		}
	}
	// The fake's release did not release when it failed.
	if got, want := f.text("fake_live"), "memory 0 handles 1 ranges 0 maps 0 streams 0 events 0 modules 0 contexts 0 primary 1"; got != want {
		t.Errorf("after failures: %s", got)
	}
	for _, step := range []string{"cuMemRetainAllocationHandle", "cuMemExportToShareableHandle", "cuMemRelease", "cuMemGetHandleForAddressRange"} {
		f.answer(step, gpu.ErrNotPermitted, 0)
		as := gpu.ExportPosixFD
		if step == "cuMemGetHandleForAddressRange" {
			as = gpu.ExportDMABuf
		}
		if _, err := d.Export(0x40000000000, 1, as); !errors.Is(err, gpu.ErrNotPermitted) {
			t.Errorf("%s: %v", step, err)
		}
	}
	if n := openFDs(t); n != fds {
		t.Errorf("%d descriptors, %d before", n, fds)
	}
	if _, err := d.Import(file, 1); !errors.Is(err, gpu.ErrInvalidValue) {
		t.Errorf("import of a closed file: %v", err)
	}
}

func TestExportAndImport(t *testing.T) {
	f := openFake(t)
	d := f.device()
	fds := openFDs(t)
	got := f.logged(func() {
		file, err := d.Export(0x40000000100, 100, gpu.ExportPosixFD)
		if err != nil {
			t.Fatal(err)
		}
		flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("flags %#x, %v: children would inherit the descriptor", flags, err)
		}
		a, err := d.Import(file, 100)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(file.Close(), d.Free(a)); err != nil {
			t.Error(err)
		}
	})
	want := []string{
		"cuMemRetainAllocationHandle(0x40000000100)",
		"cuMemExportToShareableHandle(0xdef, 1, 0)",
		"cuMemRelease(0xdef)",
		"cuMemGetAllocationGranularity(0)",
		"cuMemImportFromShareableHandle(1, 1)",
		"cuMemAddressReserve(2097152, 0, 0, 0)",
		"cuMemMap(0x40000000000, 2097152, 0, 0x123, 0)",
		"cuMemSetAccess(0x40000000000, 2097152, location 1 1 flags 3, 1)",
		"cuMemRelease(0x123)",
		"cuCtxSynchronize()",
		"cuMemUnmap(0x40000000000, 2097152)",
		"cuMemAddressFree(0x40000000000, 2097152)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	f.wantNothingLive()
	if n := openFDs(t); n != fds {
		t.Errorf("%d descriptors, %d before", n, fds)
	}
}

// The driver tells imported memory from device memory by nothing.
func TestPointerOfImportedMemory(t *testing.T) {
	f := openFake(t)
	d, other := f.device(), f.device()
	file := must(d.Export(0x40000000000, 100, gpu.ExportPosixFD))(t)
	defer file.Close()
	a := must(d.Import(file, 100))(t)
	for _, dev := range []gpu.Device{d, other} {
		if p := must(dev.Pointer(a + 100))(t); p.Kind != gpu.KindVirtual || p.Base != a || p.Size != 0x20000 {
			t.Errorf("imported memory is %+v", p)
		}
	}
	if err := d.Free(a); err != nil {
		t.Error(err)
	}
	f.call("cuMemMap", uintptr(a), 1, 0, 0x123, 0) // by somebody else
	if p := must(d.Pointer(a))(t); p.Kind != gpu.KindDevice {
		t.Errorf("memory that somebody else imported is %+v", p)
	}
	f.call("cuMemUnmap", uintptr(a), 1)
	if err := errors.Join(other.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	f.wantNothingLive()
}

func TestPointer(t *testing.T) {
	f := openFake(t)
	d := f.device()
	defer d.Close()
	const device, host, managed, virtual, foreign = 1 << 40, 2 << 40, 3 << 40, 4 << 40, 5 << 40
	if err := d.Register(host+0x10000, 0x500, 0); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		a    gpu.Addr
		want gpu.Pointer
	}{
		{"device", device + 0x1234, gpu.Pointer{Kind: gpu.KindDevice, Device: 1, Base: device + 0x1000, Size: 0x3000, SyncMemops: true}},
		{"host", host + 0x1234, gpu.Pointer{Kind: gpu.KindHost, Device: 1, Base: host + 0x1000, Size: 0x3000, Host: host + 0x1234}},
		{"registered", host + 0x10234, gpu.Pointer{Kind: gpu.KindRegistered, Device: 1, Base: host + 0x10000, Size: 0x500, Host: host + 0x10234}},
		{"past the registration", host + 0x10500, gpu.Pointer{Kind: gpu.KindHost, Device: 1, Base: host + 0x10000, Size: 0x3000, Host: host + 0x10500}},
		{"managed", managed + 8, gpu.Pointer{Kind: gpu.KindManaged, Device: 1, Base: managed, Size: 0x3000, Host: managed + 8}},
		{"virtual", virtual + 0x12345, gpu.Pointer{Kind: gpu.KindVirtual, Device: 1, Base: virtual + 0x10000, Size: 0x20000}},
		{"unknown", 0x1234, gpu.Pointer{}},
		{"of no context", foreign, gpu.Pointer{}},
	} {
		got, err := d.Pointer(tt.a)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	f.answer("cuPointerGetAttributes", gpu.ErrIllegalAddress, 0)
	if _, err := d.Pointer(device); !errors.Is(err, gpu.ErrIllegalAddress) {
		t.Errorf("failing driver: %v", err)
	}
}

func TestCloseFreesWhatIsLeft(t *testing.T) {
	f := openFake(t)
	d := f.device()
	for _, k := range []gpu.Kind{gpu.KindDevice, gpu.KindHost, gpu.KindManaged, gpu.KindVirtual} {
		if _, err := d.Alloc(k, 100, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Register(0x7000, 4096, 0); err != nil {
		t.Fatal(err)
	}
	c, err := d.NewContext(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Alloc(gpu.KindDevice, 1, 0); err != nil {
		t.Fatal(err)
	}
	for _, dev := range []gpu.Device{d, c} {
		if err := errors.Join(second(dev.NewStream()), second(dev.NewEvent()), second(dev.Load([]byte(threeParams)))); err != nil {
			t.Fatal(err)
		}
	}
	log := f.logged(func() {
		if err := errors.Join(c.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	var unregistered bool
	for _, l := range log {
		unregistered = unregistered || l == "cuMemHostUnregister(0x7000)"
	}
	if !unregistered {
		t.Errorf("the registration stays: %q", log)
	}
	f.wantNothingLive()
	if n := f.call("fake_wrong_context"); n != 0 {
		t.Errorf("%d calls with another context current", n)
	}
}
