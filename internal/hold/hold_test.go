package hold

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft"
)

func contextOf(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithCancel(context.WithoutCancel(t.Context()))
}

// TestShared: what is attached by descriptor is the same memory.
func TestShared(t *testing.T) {
	w := newWorld(t, soft.Config{GPUs: 2})
	m, want := w.model(t, gpu.KindVirtual, 2)
	s, err := NewServer(m, w, ByDescriptor)
	if err != nil {
		t.Fatal(err)
	}
	path := serve(t, s)
	a, err := Attach(t.Context(), path, w)
	if err != nil {
		t.Fatal(err)
	}
	if a.Share != ByDescriptor || s.Served() != 1 {
		t.Errorf("share %s, served %d", a.Share, s.Served())
	}
	w.check(t, a, m, want)
	if a.Tensors[0].Span.Base == m.Tensors[0].Span.Base {
		t.Error("the memory was not mapped again")
	}
	// A write on one side is seen on the other.
	dev, err := w.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.CopyIn(m.Tensors[0].Span.Addr(), []byte("changed")); err != nil {
		t.Fatal(err)
	}
	if got := w.read(t, a.Tensors[0].Span)[:7]; string(got) != "changed" {
		t.Errorf("the client sees %q", got)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestSharedSoftwareGPUs: a machine that shares the memory of its GPUs, as another process
// of one program has it, gets the model without a copy.
func TestSharedSoftwareGPUs(t *testing.T) {
	cfg := soft.Config{GPUs: 2, Shared: filepath.Join(t.TempDir(), "shared")}
	if env, err := soft.ParseConfig(os.Getenv("CULVERT_SOFT")); err != nil || env.Heap {
		t.Skip("memory on the heap is not shared")
	}
	w, other := newWorld(t, cfg), newWorld(t, cfg)
	m, want := w.model(t, gpu.KindVirtual, 2)
	s, err := NewServer(m, w, ByDescriptor)
	if err != nil {
		t.Fatal(err)
	}
	path := serve(t, s)
	before := w.free(t)
	a, err := Attach(t.Context(), path, other)
	if err != nil {
		t.Fatal(err)
	}
	other.check(t, a, m, want)
	if now := w.free(t); now != before {
		t.Errorf("%d bytes were free, and %d after the attach: the model is there twice", before, now)
	}
	dev, err := w.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.CopyIn(m.Tensors[0].Span.Addr(), []byte("changed")); err != nil {
		t.Fatal(err)
	}
	if got := other.read(t, a.Tensors[0].Span)[:7]; string(got) != "changed" {
		t.Errorf("the client sees %q", got)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	alone := newWorld(t, soft.Config{GPUs: 2})
	if _, err := Attach(t.Context(), path, alone); err == nil || !strings.Contains(err.Error(), "CULVERT_SHARED") {
		t.Errorf("a process that shares nothing: %v", err)
	}
}

// TestOrder: a model comes in the order of memory, whatever became ready first.
func TestOrder(t *testing.T) {
	w := newWorld(t, soft.Config{GPUs: 2})
	m, want := w.model(t, gpu.KindVirtual, 2)
	slices.Reverse(m.Tensors)
	slices.Reverse(want)
	s, err := NewServer(m, w, ByDescriptor)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Attach(t.Context(), serve(t, s), w)
	if err != nil {
		t.Fatal(err)
	}
	w.check(t, a, m, want)
	var names []string
	for _, got := range a.Tensors {
		names = append(names, got.Name)
	}
	if !slices.IsSorted(names) { // as the model has placed them
		t.Errorf("the order is %q", names)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// A rank maps the memory of its own GPU, and need not see those of the others.
func TestOneGPU(t *testing.T) {
	w := newWorld(t, soft.Config{GPUs: 2})
	m, want := w.model(t, gpu.KindVirtual, 2)
	s, err := NewServer(m, w, ByDescriptor)
	if err != nil {
		t.Fatal(err)
	}
	path := serve(t, s)
	for i := range 2 {
		a, err := AttachFrom(t.Context(), path, os.Geteuid(), hidden{w, i}, i)
		if err != nil {
			t.Fatal(err)
		}
		own := *m
		own.Tensors = m.Tensors[4*i : 4*i+4]
		w.check(t, a, &own, want[4*i:4*i+4])
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := AttachFrom(t.Context(), path, os.Geteuid(), w, 5); err == nil || !strings.Contains(err.Error(), "nothing on GPU [5]") {
		t.Errorf("attached to GPU 5: %v", err)
	}
}

// hidden is a process that sees one GPU.
type hidden struct {
	*world
	gpu int
}

func (h hidden) Devices() ([]gpu.Info, error) {
	all, err := h.world.Devices()
	if err != nil {
		return nil, err
	}
	return all[h.gpu : h.gpu+1], nil
}

// TestOutlives: a client keeps the memory when the holder is gone.
func TestOutlives(t *testing.T) {
	w := newWorld(t, soft.Config{})
	m, want := w.model(t, gpu.KindVirtual, 1)
	s, err := NewServer(m, w, ByDescriptor)
	if err != nil {
		t.Fatal(err)
	}
	path := serve(t, s)
	a, err := Attach(t.Context(), path, w)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	dev, err := w.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Free(m.Tensors[0].Span.Base); err != nil {
		t.Fatal(err)
	}
	w.check(t, a, m, want)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestCopied: another machine, as another process has it, gets the bytes.
func TestCopied(t *testing.T) {
	w, other := newWorld(t, soft.Config{GPUs: 2}), newWorld(t, soft.Config{GPUs: 2})
	m, want := w.model(t, gpu.KindDevice, 2)
	s, err := NewServer(m, w, ByCopy)
	if err != nil {
		t.Fatal(err)
	}
	path := serve(t, s)
	a, err := Attach(t.Context(), path, other)
	if err != nil {
		t.Fatal(err)
	}
	if a.Share != ByCopy {
		t.Errorf("share %s", a.Share)
	}
	other.check(t, a, m, want)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestNothingIsLeft attaches many times, and counts descriptors and memory.
func TestNothingIsLeft(t *testing.T) {
	w := newWorld(t, soft.Config{})
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would close forgotten files
	for _, share := range []Share{ByDescriptor, ByCopy} {
		m, _ := w.model(t, gpu.KindVirtual, 1)
		s, err := NewServer(m, w, share)
		if err != nil {
			t.Fatal(err)
		}
		path := serve(t, s)
		once := func() {
			t.Helper()
			a, err := Attach(t.Context(), path, w)
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
		}
		once()
		files, free := openFiles(t), w.free(t)
		for range 100 {
			once()
		}
		// The server closes a connection a moment after the client.
		n := openFiles(t)
		for start := time.Now(); n > files && time.Since(start) < time.Minute; n = openFiles(t) {
			time.Sleep(time.Millisecond)
		}
		if n > files {
			t.Errorf("%s: %d descriptors became %d", share, files, n)
		}
		if n := w.free(t); n != free {
			t.Errorf("%s: %d bytes of GPU memory were free, now %d", share, free, n)
		}
	}
}

func TestOtherGPU(t *testing.T) {
	w, other := newWorld(t, soft.Config{}), newWorld(t, soft.Config{Seed: 7})
	m, _ := w.model(t, gpu.KindVirtual, 1)
	s, err := NewServer(m, w, ByDescriptor)
	if err != nil {
		t.Fatal(err)
	}
	path := serve(t, s)
	_, err = Attach(t.Context(), path, other)
	if err == nil || !strings.Contains(err.Error(), "which this process does not see: it sees ") || !strings.Contains(err.Error(), "GPU-") {
		t.Errorf("attached to a GPU that is not there: %v", err)
	}
}

// TestForeignDescriptor: the software machine's memory cannot be mapped by
// another process, and the message says which call refused.
func TestForeignDescriptor(t *testing.T) {
	w, other := newWorld(t, soft.Config{}), newWorld(t, soft.Config{})
	m, _ := w.model(t, gpu.KindVirtual, 1)
	s, err := NewServer(m, w, ByDescriptor)
	if err != nil {
		t.Fatal(err)
	}
	path := serve(t, s)
	_, err = Attach(t.Context(), path, other)
	if err == nil || !strings.Contains(err.Error(), "cuMemImportFromShareableHandle") {
		t.Errorf("attached to another machine's memory: %v", err)
	}
}

// TestKind: memory that has no handle is refused when the server starts, not
// when the first client comes.
func TestKind(t *testing.T) {
	w := newWorld(t, soft.Config{GPUs: 2})
	m, _ := w.model(t, gpu.KindVirtual, 1)
	plain, _ := w.model(t, gpu.KindDevice, 2)
	m.Tensors = append(m.Tensors, plain.Tensors[4])
	before := 0
	for i := range 5 {
		if _, err := NewServer(m, w, ByDescriptor); !errors.Is(err, gpu.ErrInvalidValue) {
			t.Errorf("device memory is shared: %v", err)
		}
		// The software driver notices the end of an export with the next one.
		switch n := openFiles(t); {
		case i == 0:
			before = n
		case n != before:
			t.Errorf("%d descriptors became %d", before, n)
		}
	}
}

func TestNobody(t *testing.T) {
	w := newWorld(t, soft.Config{})
	path := socket(t)
	if _, err := Attach(t.Context(), path, w); !os.IsNotExist(errors.Unwrap(errors.Unwrap(err))) && !strings.Contains(err.Error(), "no model is served there") {
		t.Errorf("no socket: %v", err)
	}
	stale(t, path)
	if _, err := Attach(t.Context(), path, w); err == nil || !strings.Contains(err.Error(), "--hold "+path) {
		t.Errorf("a dead socket: %v", err)
	}
}

// stale leaves a socket that nobody listens on.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestStop: the server ends at once, also while a client says nothing.
func TestStop(t *testing.T) {
	w := newWorld(t, soft.Config{})
	m, _ := w.model(t, gpu.KindVirtual, 1)
	s, err := NewServer(m, w, ByDescriptor)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	path := socket(t)
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextOf(t)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	silent, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	// The silent one was accepted once the next one has been answered.
	a, err := Attach(t.Context(), path, w)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the silent client reads %v", err)
	}
}

// TestCancelAttach: a holder that does not answer can be given up.
func TestCancelAttach(t *testing.T) {
	w := newWorld(t, soft.Config{})
	path := socket(t)
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := contextOf(t)
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			io.ReadFull(c, make([]byte, 4)) // it has asked
		}
		cancel()
	}()
	if _, err := Attach(ctx, path, w); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}

// TestManyAtOnce: clients do not disturb each other.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, soft.Config{})
	if _, err := w.Device(0); err != nil { // the map is not for concurrent use
		t.Fatal(err)
	}
	m, want := w.model(t, gpu.KindVirtual, 1)
	s, err := NewServer(m, w, ByDescriptor)
	if err != nil {
		t.Fatal(err)
	}
	path := serve(t, s)
	errs := make(chan error, 16)
	for range cap(errs) {
		go func() {
			a, err := Attach(t.Context(), path, w)
			if err == nil {
				data := make([]byte, 1000)
				if err = w.devices[0].CopyOut(data, a.Tensors[1].Span.Addr()); err == nil && !bytes.Equal(data, want[1]) {
					err = errors.New("other bytes")
				}
				err = errors.Join(err, a.Close())
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if s.Served() != int64(cap(errs)) {
		t.Errorf("%d were served", s.Served())
	}
}

// A holder that runs out of descriptors for a moment goes on holding.
func TestOutOfDescriptors(t *testing.T) {
	ctx, cancel := contextOf(t)
	answers := []error{unix.EMFILE, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", unix.ENFILE)}}
	accept := func() (*net.UnixConn, error) {
		if len(answers) == 0 {
			cancel()
			return nil, net.ErrClosed
		}
		err := answers[0]
		answers = answers[1:]
		return nil, err
	}
	if err := new(Server).serve(ctx, accept); err != nil || len(answers) > 0 {
		t.Errorf("%v, %d calls to come", err, len(answers))
	}
	if err := new(Server).serve(t.Context(), func() (*net.UnixConn, error) { return nil, unix.EBADF }); !errors.Is(err, unix.EBADF) {
		t.Errorf("a listener that is gone: %v", err)
	}
}
