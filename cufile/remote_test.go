package cufile_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
	softnvme "github.com/culvert-io/culvert/soft/nvme"
)

// onRemoteDrive is a fixture whose files are on a drive of another host.
func onRemoteDrive(t *testing.T, size int) (*fixture, *soft.Machine) {
	t.Helper()
	if *machineKind != machine.Soft {
		t.Skip("needs the software machine")
	}
	cfg := softConfig()
	cfg.Drive = "nvme-rdma"
	m := softMachine(t, cfg)
	s, _ := soft.Of(m.GPU)
	return newFixtureOn(t, m, size), s
}

// The adapter moves what cuFile reads and writes between the other host and GPU memory: the
// receipt says so, and the counters of the fabric.
func TestRemoteDrive(t *testing.T) {
	const size = 1 << 20
	f, m := onRemoteDrive(t, size)
	h, buf := f.nvfs(os.O_RDWR), f.buffer(size)
	f.canary(buf)
	ctx := context.Background()
	if r, err := h.ReadAt(ctx, buf.Span().Slice(0, 4096), 0); err != nil || r.Route != route.NVFS { // connects
		t.Fatalf("%v, %v", &r, err)
	}
	before, link := m.Fabric().HostTraffic(), m.StoragePort().Traffic()
	r, err := h.ReadAt(ctx, buf.Span(), 0)
	if err != nil || r.Bytes != size || r.Route != route.NVFS || r.By[route.NVFS] != size || r.Host != (route.ByteCount{}) {
		t.Errorf("%v, %v", &r, err)
	}
	f.holds(buf, 0, f.data)
	if host := m.Fabric().HostTraffic(); host.Written-before.Written >= 4096 {
		t.Errorf("host memory has seen %+v after %+v", host, before)
	}
	if up := m.StoragePort().Traffic().Up - link.Up; up < size {
		t.Errorf("%d bytes went up the adapter's link", up)
	}
	f.canary(buf)
	if r, err = h.WriteAt(ctx, buf.Span().Slice(0, size/2), size/2); err != nil || r.Route != route.NVFS || r.Host != (route.ByteCount{}) {
		t.Errorf("%v, %v", &r, err)
	}
	copy(f.data[size/2:], bytes.Repeat([]byte{canaryByte}, size/2))
	f.fileHolds(f.data)
}

// A remote drive that is gone is an error if the route is required, and no byte is wrong.
func TestRemoteDriveIsGone(t *testing.T) {
	const size = 256 << 10
	f, m := onRemoteDrive(t, size)
	h, buf := f.nvfs(os.O_RDWR), f.buffer(size)
	if err := h.Require(0, route.NVFS); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for range 3 {
		f.canary(buf)
		if r, err := h.ReadAt(ctx, buf.Span(), 0); err != nil || r.Route != route.NVFS {
			t.Fatalf("%v, %v", &r, err)
		}
		f.holds(buf, 0, f.data)
		m.Remote().Cut()
	}
	m.Remote().Down(true)
	var err error
	for i := 0; err == nil && i < 1000; i++ { // the wire may still answer once
		_, err = h.ReadAt(ctx, buf.Span(), 0)
	}
	if cufile.CodeOf(err) != cufile.IOError || !errors.Is(err, unix.EIO) {
		t.Errorf("read: %v", err)
	}
	if r, err := h.WriteAt(ctx, buf.Span(), 0); err == nil || r.Bytes != 0 {
		t.Errorf("write: %v, %v", &r, err)
	}
	f.fileHolds(f.data)
	m.Remote().Down(false)
	f.canary(buf)
	if _, err := h.ReadAt(ctx, buf.Span(), 0); err != nil {
		t.Error(err)
	}
	f.holds(buf, 0, f.data)
}

// Bytes that a remote drive reports and does not deliver are noticed: no lie reaches the
// caller.
func TestRemoteDriveLies(t *testing.T) {
	for _, lie := range []softnvme.Lie{softnvme.Drop, softnvme.Misdirect, softnvme.Delay, softnvme.Duplicate, softnvme.Transform} {
		const size = 256 << 10
		f, m := onRemoteDrive(t, size)
		h, buf := f.nvfs(os.O_RDWR), f.buffer(size)
		liar := &softnvme.Liar{OneIn: 1, Lies: []softnvme.Lie{lie}}
		m.Lie(liar)
		f.canary(buf)
		r, err := h.ReadAt(context.Background(), buf.Span(), 0)
		if err != nil || liar.Told() == 0 || r.Route == route.NVFS {
			t.Errorf("%v: %v after %d lies, %v", lie, &r, liar.Told(), err)
		}
		f.holds(buf, 0, f.data)
		m.Lie(nil)
	}
}
