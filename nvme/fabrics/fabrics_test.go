package fabrics

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	nvme "github.com/culvert-io/culvert/internal/abi/nvme"
	abi "github.com/culvert-io/culvert/internal/abi/nvmf"
	"github.com/culvert-io/culvert/internal/endpoint"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/tcp"
	"github.com/culvert-io/culvert/soft"
)

const nqn = "nqn.2026-01.io.culvert:test"

// A disk is a Backing in memory that fails where it is told to.
type disk struct {
	mu    sync.Mutex
	b     []byte
	bad   int64 // offset of a bad block; 0 for none
	syncs int
}

func (d *disk) ReadAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bad != 0 && off <= d.bad && d.bad < off+int64(len(p)) {
		return 0, io.ErrUnexpectedEOF
	}
	return copy(p, d.b[off:]), nil
}

func (d *disk) WriteAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bad != 0 && off <= d.bad && d.bad < off+int64(len(p)) {
		return 0, io.ErrShortWrite
	}
	return copy(d.b[off:], p), nil
}

func (d *disk) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncs++
	return nil
}

func (d *disk) setBad(off int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bad = off
}

// state is the contents, and how often they were made durable.
func (d *disk) state() ([]byte, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return bytes.Clone(d.b), d.syncs
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func tcpDevice(t *testing.T) rdma.Device {
	t.Helper()
	p, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return openDevice(t, p)
}

func openDevice(t *testing.T, p rdma.Provider) rdma.Device {
	t.Helper()
	d, err := p.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// serve starts a target with one drive and returns how to reach it.
func serve(t *testing.T, dev rdma.Device, d *disk) func(context.Context) (net.Conn, error) {
	t.Helper()
	target, err := NewTarget(TargetConfig{Device: dev, NQN: nqn, Model: "test drive", Queues: 2, Drives: []Drive{{d, uint64(len(d.b) >> 9), 9}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- target.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := len(target.controllers); n != 0 {
			t.Errorf("%d controllers are left", n)
		}
	})
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}
}

func connect(t *testing.T, cfg Config) *Controller {
	t.Helper()
	cfg.NQN = nqn
	c, err := Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func hostMemory(t *testing.T, c *Controller, n int) *endpoint.Memory {
	t.Helper()
	m, err := endpoint.NewMemory(c.PD(), n, memoryAccess)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestReadWrite(t *testing.T) {
	d := &disk{b: noise(1 << 20)}
	want := bytes.Clone(d.b)
	dial := serve(t, tcpDevice(t), d)
	c := connect(t, Config{Device: tcpDevice(t), Dial: dial, Queues: 5, Depth: 4})
	ns := c.Namespaces()
	if len(ns) != 1 || ns[0].Blocks() != 2048 || ns[0].BlockSize() != 512 || ns[0].ID() != 1 || c.Model() != "test drive" || len(c.queues) != 2 {
		t.Fatalf("%+v, model %q, %d queues", ns, c.Model(), len(c.queues))
	}
	m := hostMemory(t, c, 1<<20)
	if err := ns[0].Read(t.Context(), m, 0, 1<<20, 0); err != nil || !bytes.Equal(m.Bytes, want) {
		t.Fatalf("read: %v", err)
	}
	// Blocks 3 to 5 come from the memory's end.
	copy(m.Bytes[1<<20-1024:], bytes.Repeat([]byte("x"), 1024))
	copy(want[3*512:5*512], m.Bytes[1<<20-1024:])
	if err := errors.Join(ns[0].Write(t.Context(), m, 1<<20-1024, 1024, 3*512), ns[0].Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got, syncs := d.state(); !bytes.Equal(got, want) || syncs != 1 {
		t.Errorf("the drive has other data, or %d syncs", syncs)
	}
	for name, err := range map[string]error{
		"unaligned offset": ns[0].Read(t.Context(), m, 0, 512, 7),
		"unaligned length": ns[0].Read(t.Context(), m, 0, 100, 0),
		"outside of mr":    ns[0].Read(t.Context(), m, 1<<20-512, 1024, 0),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// TestParallel has more callers than commands fit into the queues.
func TestParallel(t *testing.T) {
	d := &disk{b: noise(64 << 10)}
	dial := serve(t, tcpDevice(t), d)
	c := connect(t, Config{Device: tcpDevice(t), Dial: dial, Queues: 2, Depth: 2})
	m := hostMemory(t, c, 64<<10)
	var wg sync.WaitGroup
	for i := range 128 {
		wg.Go(func() {
			at := uint64(i * 512)
			if err := c.Namespaces()[0].Read(t.Context(), m, at, 512, int64(at)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if want, _ := d.state(); !bytes.Equal(m.Bytes, want) {
		t.Error("wrong data")
	}
}

// TestGPUMemory lets the target write into memory of a GPU, through the software NIC.
func TestGPUMemory(t *testing.T) {
	s, err := soft.New(soft.Config{Callback: true}) // frees revoke pins
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.InUse(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	d := &disk{b: noise(256 << 10)}
	want := bytes.Clone(d.b)
	dial := serve(t, openDevice(t, s.RDMA()), d)
	c := connect(t, Config{Device: openDevice(t, s.RDMA()), Dial: dial})
	dev, err := s.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := dev.Alloc(gpu.KindDevice, 256<<10, 0)
	if err != nil {
		t.Fatal(err)
	}
	mr, err := c.PD().Register(rdma.Address(a, 256<<10), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	before := s.Fabric().HostTraffic()
	if err := c.Namespaces()[0].Read(t.Context(), mr, 0, 256<<10, 0); err != nil {
		t.Fatal(err)
	}
	// Commands and completions only: no data of the host's end.
	if n := s.Fabric().HostTraffic().Written - before.Written; n > 4096 {
		t.Errorf("%d bytes were written to host memory", n)
	}
	got := make([]byte, len(want))
	if err := dev.CopyOut(got, a); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the GPU has other data, %v", err)
	}
	// Freed memory is out of reach: the command fails and the drive keeps its data.
	if err := dev.Free(a); err != nil {
		t.Fatal(err)
	}
	err = c.Namespaces()[0].Write(t.Context(), mr, 0, 4096, 0)
	if kept, _ := d.state(); err == nil || !bytes.Equal(kept, want) {
		t.Errorf("a write from freed memory: %v", err)
	}
	if err := errors.Join(mr.Close(), dev.Close()); err != nil {
		t.Error(err)
	}
}

// A queue that has ended has no memory: commands that come later fail before they touch it.
func TestEndedQueue(t *testing.T) {
	dial := serve(t, tcpDevice(t), &disk{b: noise(4096)})
	c := connect(t, Config{Device: tcpDevice(t), Dial: dial})
	q := c.queues[0]
	q.close(io.ErrClosedPipe)
	if err := q.post(0, nvme.Command{}, nil, nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("post: %v", err)
	}
	for range 100 { // a slot and the end are there: either may be seen first
		if _, err := q.do(t.Context(), "read", nvme.Command{}, nil); !errors.Is(err, io.ErrClosedPipe) {
			t.Fatal(err)
		}
	}
}

func status(err error) nvme.Status {
	if e, ok := errors.AsType[*CommandError](err); ok {
		return nvme.Status(e.Status).Code()
	}
	return 0xffff
}

// TestErrors sends commands that must fail, and checks the codes.
func TestErrors(t *testing.T) {
	d := &disk{b: noise(64 << 10), bad: 32 << 10}
	want := bytes.Clone(d.b)
	dial := serve(t, tcpDevice(t), d)
	c := connect(t, Config{Device: tcpDevice(t), Dial: dial})
	m := hostMemory(t, c, 256<<10)
	key := func(n uint32) abi.SGL { return abi.Keyed(m.Addr(), n, m.RKey()) }
	for _, e := range []struct {
		name  string
		admin bool
		cmd   nvme.Command
		sgl   abi.SGL
		want  nvme.Status
	}{
		{"bad block", false, nvme.Blocks(nvme.NVM_READ, 1, 64, 1), key(512), nvme.UNRECOVERED_READ},
		{"bad block, write", false, nvme.Blocks(nvme.NVM_WRITE, 1, 64, 1), key(512), nvme.WRITE_FAULT},
		{"behind the end", false, nvme.Blocks(nvme.NVM_READ, 1, 128, 1), key(512), nvme.LBA_OUT_OF_RANGE},
		{"wraps around", false, nvme.Blocks(nvme.NVM_READ, 1, 1<<64-1, 2), key(1024), nvme.LBA_OUT_OF_RANGE},
		{"no namespace", false, nvme.Blocks(nvme.NVM_READ, 2, 0, 1), key(512), nvme.INVALID_NAMESPACE},
		{"namespace 0", false, nvme.Blocks(nvme.NVM_READ, 0, 0, 1), key(512), nvme.INVALID_NAMESPACE},
		{"lying length", false, nvme.Blocks(nvme.NVM_READ, 1, 0, 1), key(1024), abi.SGL_LENGTH_INVALID},
		{"not keyed", false, nvme.Blocks(nvme.NVM_READ, 1, 0, 1), abi.InCapsule(0, 512), abi.SGL_TYPE_INVALID},
		{"no such command", false, nvme.Command{Opcode: 0x77, NSID: 1}, key(512), nvme.INVALID_OPCODE},
		{"connect twice", false, nvme.Command{Opcode: abi.OPCODE}, key(512), nvme.INVALID_OPCODE},
		{"no such identify", true, nvme.Command{Opcode: nvme.ADMIN_IDENTIFY, CDW10: 0x55}, key(4096), nvme.INVALID_FIELD},
		{"no such feature", true, nvme.Command{Opcode: nvme.ADMIN_GET_FEATURES, CDW10: 0x55}, key(4096), nvme.INVALID_FIELD},
	} {
		if err := e.sgl.Put(&e.cmd); err != nil {
			t.Fatal(err)
		}
		q := c.io()
		if e.admin {
			q = c.admin
		}
		if _, err := q.do(t.Context(), e.name, e.cmd, nil); status(err) != e.want {
			t.Errorf("%s: %v, want %v", e.name, err, e.want)
		}
	}
	if kept, _ := d.state(); !bytes.Equal(kept, want) || !bytes.Equal(m.Bytes, make([]byte, len(m.Bytes))) {
		t.Error("data changed")
	}
	// A command without an SGL.
	if _, err := c.io().do(t.Context(), "PRP", nvme.Blocks(nvme.NVM_READ, 1, 0, 1), nil); status(err) != nvme.INVALID_FIELD {
		t.Errorf("PRP: %v", err)
	}
	// A key that is none: the command fails, and the queue with it.
	cmd := nvme.Blocks(nvme.NVM_READ, 1, 0, 1)
	if err := abi.Keyed(m.Addr(), 512, m.RKey()^1<<8).Put(&cmd); err != nil {
		t.Fatal(err)
	}
	if _, err := c.io().do(t.Context(), "wrong key", cmd, nil); err == nil {
		t.Error("a wrong key was accepted")
	}
}

// TestRefused connects to what is not there.
func TestRefused(t *testing.T) {
	dial := serve(t, tcpDevice(t), &disk{b: make([]byte, 4096)})
	_, err := Connect(t.Context(), Config{Device: tcpDevice(t), Dial: dial, NQN: "nqn.other"})
	if e, ok := errors.AsType[*CommandError](err); !ok || nvme.Status(e.Status).Code() != abi.CONNECT_INVALID_PARAMETERS || e.Result != abi.IATTR_DATA<<16|256 {
		t.Errorf("another subsystem: %v", err)
	}
	_, err = Connect(t.Context(), Config{Device: tcpDevice(t), Dial: dial, NQN: nqn, Depth: maxDepth + 1})
	if _, ok := errors.AsType[*RejectedError](err); !ok || !strings.Contains(err.Error(), "invalid host send queue size") {
		t.Errorf("a queue of %d: %v", maxDepth+1, err)
	}
	if _, err := NewTarget(TargetConfig{NQN: nqn, Drives: []Drive{{nil, 1, 8}}}); err == nil {
		t.Error("blocks of 256 bytes were accepted")
	}
}

// TestTargetGone ends the target's connection: commands fail, none hangs.
func TestTargetGone(t *testing.T) {
	var conns []net.Conn
	dial := serve(t, tcpDevice(t), &disk{b: make([]byte, 4096)})
	c := connect(t, Config{Device: tcpDevice(t), Dial: func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		conns = append(conns, conn)
		return conn, err
	}})
	m := hostMemory(t, c, 4096)
	for _, conn := range conns {
		conn.Close()
	}
	if err := c.Namespaces()[0].Read(t.Context(), m, 0, 4096, 0); err == nil {
		t.Error("a read without a target succeeded")
	}
}

// TestStrangers sends garbage instead of requests; the target still serves.
func TestStrangers(t *testing.T) {
	dial := serve(t, tcpDevice(t), &disk{b: make([]byte, 4096)})
	for _, text := range []string{"", "x", strings.Repeat("\xff", 32), strings.Repeat("\x00", 32), "\x00\x00\x00\x00\x10\x00\x0f\x00" + strings.Repeat("\x00", 24) + strings.Repeat("garbage", 20)} {
		conn, err := dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(text))
		conn.(*net.TCPConn).CloseWrite()
		_, _ = io.ReadAll(conn)
		conn.Close()
	}
	connect(t, Config{Device: tcpDevice(t), Dial: dial})
}
