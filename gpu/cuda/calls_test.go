//go:build linux && (amd64 || arm64) && !nodl

package cuda_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/cuda"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

const threeParams = `
.version 8.0
.target sm_70
.visible .entry three(.param .u64 a, .param .u32 b, .param .u64 c) { ret; }
.visible .entry none() { ret; }
`

// Every method must pass the right words in the right order.
func TestCalls(t *testing.T) {
	f := openFake(t)
	d := f.device()
	other := must(f.drv.Open(0))(t)
	s := must(d.NewStream())(t).(*cuda.Stream)
	ev1, err1 := d.NewEvent()
	ev2, err2 := d.NewEvent()
	mod, err3 := d.Load([]byte(threeParams))
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	fn, err1 := mod.Func("three")
	none, err2 := mod.Func("none")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	mem, err := d.Alloc(gpu.KindDevice, 4096, 0)
	if err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"MemInfo", func() error {
			free, total, err := d.MemInfo()
			if free != 100 || total != 200 {
				t.Errorf("free %d, total %d", free, total)
			}
			return err
		}, []string{"cuMemGetInfo_v2()"}},
		{"Register", func() error { return d.Register(0x7000, 1<<33, gpu.RegisterReadOnly|gpu.RegisterPortable) }, []string{"cuMemHostRegister_v2(0x7000, 8589934592, 9)"}},
		{"Unregister", func() error { return d.Unregister(0x7000) }, []string{"cuMemHostUnregister(0x7000)"}},
		{"DevicePointer", func() error {
			a, err := d.DevicePointer(0x7000)
			if a != 0x8000 {
				t.Errorf("device pointer %v", a)
			}
			return err
		}, []string{"cuMemHostGetDevicePointer_v2(0x7000, 0)"}},
		{"SetSyncMemops", func() error { return d.SetSyncMemops(0x123, true) }, []string{"cuPointerSetAttribute(1, 6, 0x123)"}},
		{"clear SyncMemops", func() error { return d.SetSyncMemops(0x123, false) }, []string{"cuPointerSetAttribute(0, 6, 0x123)"}},
		{"CopyIn waits", func() error { return d.CopyIn(mem, make([]byte, 100)) }, []string{"cuMemcpyHtoD_v2(100)", "cuStreamSynchronize(0)"}},
		{"CopyOut", func() error { return d.CopyOut(make([]byte, 100), mem) }, []string{"cuMemcpyDtoH_v2(100)"}},
		{"Copy waits", func() error { return d.Copy(mem+8, mem, 8) }, []string{"cuMemcpy(8)", "cuStreamSynchronize(0)"}},
		{"Fill 1 waits", func() error { return d.Fill(mem, 0xabcd12, 1, 5) }, []string{"cuMemsetD8_v2(0x12, 5)", "cuStreamSynchronize(0)"}},
		{"Fill 2", func() error { return d.Fill(mem, 0xabcd12, 2, 5) }, []string{"cuMemsetD16_v2(0xcd12, 5)", "cuStreamSynchronize(0)"}},
		{"Fill 4", func() error { return d.Fill(mem, 0xabcd12, 4, 1<<40) }, []string{"cuMemsetD32_v2(0xabcd12, 1099511627776)", "cuStreamSynchronize(0)"}},
		{"Synchronize", d.Synchronize, []string{"cuCtxSynchronize()"}},
		{"FlushWrites", func() error { return d.FlushWrites(gpu.ScopeAllDevices) }, []string{"cuFlushGPUDirectRDMAWrites(0, 200)"}},
		{"Stream.Copy", func() error { return s.Copy(1<<40, 0x20, 1<<35) }, []string{"cuMemcpyAsync(0x10000000000, 0x20, 34359738368, 0x51)"}},
		{"Stream.Fill 1", func() error { return s.Fill(0x10, 0x1ff, 1, 3) }, []string{"cuMemsetD8Async(0x10, 0xff, 3, 0x51)"}},
		{"Stream.Fill 2", func() error { return s.Fill(0x10, 0x1ffff, 2, 3) }, []string{"cuMemsetD16Async(0x10, 0xffff, 3, 0x51)"}},
		{"Stream.Fill 4", func() error { return s.Fill(0x10, 0xfffffffe, 4, 3) }, []string{"cuMemsetD32Async(0x10, 0xfffffffe, 3, 0x51)"}},
		{"Stream.Write 4", func() error { return s.Write(0x10, 1<<32|7, 4) }, []string{"cuStreamWriteValue32_v2(0x51, 0x10, 7, 0)"}},
		{"Stream.CopyPeer", func() error { return s.CopyPeer(1<<40, other, 0x20, 1<<35) }, []string{"cuCtxEnablePeerAccess(0xc0, 0)", "cuMemcpyPeerAsync(0x10000000000, 0xc1, 0x20, 0xc0, 34359738368, 0x51)"}},
		{"Stream.CopyPeer again", func() error { return s.CopyPeer(0x10, other, 0x20, 3) }, []string{"cuMemcpyPeerAsync(0x10, 0xc1, 0x20, 0xc0, 3, 0x51)"}},
		{"Stream.CopyPeer on one GPU", func() error { return s.CopyPeer(0x10, d, 0x20, 3) }, []string{"cuMemcpyPeerAsync(0x10, 0xc1, 0x20, 0xc1, 3, 0x51)"}},
		{"Stream.CopyWrite", func() error { return s.CopyWrite(0x10, 0x20, 3, 0x30, 7) }, []string{"cuMemcpyAsync(0x10, 0x20, 3, 0x51)", "cuStreamWriteValue32_v2(0x51, 0x30, 7, 0)"}},
		{"Stream.Write 8", func() error { return s.Write(0x10, 1<<32|7, 8) }, []string{"cuStreamWriteValue64_v2(0x51, 0x10, 4294967303, 0)"}},
		{"Stream.Wait 4", func() error { return s.Wait(0x10, 9, 4, gpu.CondNOR) }, []string{"cuStreamWaitValue32_v2(0x51, 0x10, 9, 3)"}},
		{"Stream.Wait 8", func() error { return s.Wait(0x10, 1<<32, 8, gpu.CondEQ) }, []string{"cuStreamWaitValue64_v2(0x51, 0x10, 4294967296, 1)"}},
		{"Stream.Capturing", func() error {
			capturing, err := s.Capturing()
			if !capturing {
				t.Error("not capturing")
			}
			return err
		}, []string{"cuStreamIsCapturing(0x51)"}},
		{"Stream.Record", func() error { return s.Record(ev1) }, []string{"cuEventRecord(0xe1, 0x51)"}},
		{"Stream.WaitEvent", func() error { return s.WaitEvent(ev2) }, []string{"cuStreamWaitEvent(0x51, 0xe2, 0)"}},
		{"Stream.Synchronize", s.Synchronize, []string{"cuStreamSynchronize(0x51)"}},
		{"Stream.Done", func() error {
			if done, err := s.Done(); !done {
				t.Errorf("not done: %v", err)
			}
			return nil
		}, []string{"cuStreamQuery(0x51)"}},
		{"Event.Done", func() error { _, err := ev1.Done(); return err }, []string{"cuEventQuery(0xe1)"}},
		{"Event.Synchronize", ev2.Synchronize, []string{"cuEventSynchronize(0xe2)"}},
		{"Event.Since", func() error {
			since, err := ev2.Since(ev1)
			if since != 1250*time.Microsecond {
				t.Errorf("since %v", since)
			}
			return err
		}, []string{"cuEventElapsedTime(0xe1, 0xe2)"}},
		{"Load", func() error {
			m, err := d.Load([]byte(threeParams))
			if err != nil {
				return err
			}
			return m.Close()
		}, []string{fmt.Sprintf("cuModuleLoadDataEx(%d bytes, 2 options 5 6)", len(threeParams)), "cuModuleUnload(0x30d)"}},
		{"Func", func() error { _, err := mod.Func("three"); return err }, []string{"cuModuleGetFunction(0x30d, three)"}},
		{"Launch", func() error {
			return s.Launch(fn, gpu.Dim{X: 1, Y: 2, Z: 3}, gpu.Dim{X: 4, Y: 5, Z: 6}, gpu.Addr(1<<40), uint32(1<<31), int64(77))
		}, []string{"cuLaunchKernel(0xf0, 1 2 3, 4 5 6, 0, 0x51, 1099511627776 2147483648 77, (nil))"}},
		{"Launch without arguments", func() error { return s.Launch(none, gpu.Dim{}, gpu.Dim{X: 32}) }, []string{"cuLaunchKernel(0xf0, 1 1 1, 32 1 1, 0, 0x51, none, (nil))"}},
		{"IPCHandle", func() error {
			h, err := d.IPCHandle(0x55)
			if h[0] != 0 || h[63] != 63 {
				t.Errorf("handle %v", h)
			}
			return err
		}, []string{"cuIpcGetMemHandle(0x55)"}},
		{"DMA-buf", func() error {
			file, err := d.Export(0x10, 1<<34, gpu.ExportDMABuf)
			if err != nil {
				return err
			}
			return file.Close()
		}, []string{"cuMemGetHandleForAddressRange(0x10, 17179869184, 1, 0)"}},
		{"DMA-buf of PCIe addresses", func() error {
			file, err := d.Export(0x10, 1<<34, gpu.ExportDMABufPCIe)
			if err != nil {
				return err
			}
			return file.Close()
		}, []string{"cuMemGetHandleForAddressRange(0x10, 17179869184, 1, 1)"}},
	} {
		got := f.logged(func() {
			if err := tt.do(); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		})
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if v, err := d.Attribute(abi.AttrMultiprocessors); v != 132 || err != nil {
		t.Errorf("attribute %d, %v", v, err)
	}
	if _, err := d.Attribute(9999); !errors.Is(err, gpu.ErrInvalidValue) {
		t.Errorf("unknown attribute: %v", err)
	}
	if d.Context() != 0xc1 {
		t.Errorf("context %#x", d.Context())
	}
	if err := errors.Join(s.Close(), ev1.Close(), ev2.Close(), mod.Close(), d.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	f.wantNothingLive()
}

func TestNewestNames(t *testing.T) {
	f := openFake(t, "CTX_V4")
	d := f.device()
	defer d.Close()
	got := f.logged(func() {
		c, err := d.NewContext(gpu.ContextMapHost)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	want := []string{
		"cuCtxCreate_v4((nil), 0x8, 1)", "cuCtxPopCurrent_v2()", "cuCtxDestroy_v2()",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
