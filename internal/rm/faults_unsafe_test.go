package rm_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/nvrm"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/rm"
)

// A tap is an operating system whose calls are seen, and may be made to fail.
type tap struct {
	dev.OS
	seen []string
	// fail is asked before each call but those that give something back, with
	// its number and name. An errno is returned instead of doing the work; a
	// status is what the resource manager then answers.
	fail func(n int, name string) error
	n    int
}

func (o *tap) ask(name string) error {
	o.seen = append(o.seen, name)
	if o.fail == nil {
		return nil
	}
	o.n++
	return o.fail(o.n-1, name)
}

func (o *tap) Open(path string) (dev.Node, error) {
	if err := o.ask("open " + path); err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	n, err := o.OS.Open(path)
	if err != nil {
		return nil, err
	}
	return &tapNode{n, o, path}, nil
}

type tapNode struct {
	dev.Node
	o    *tap
	path string
}

// names of requests, and where their answer has its status.
var requests = map[uintptr]struct {
	name   string
	status uintptr // 0: it has none
	undo   bool    // gives something back
}{
	abi.IoctlCheckVersion: {"version", 0, false},
	abi.IoctlCardInfo:     {"cards", 0, false},
	abi.IoctlAlloc:        {"alloc", unsafe.Offsetof(abi.NVOS64Parameters{}.Status), false},
	abi.IoctlControl:      {"control", unsafe.Offsetof(abi.NVOS54Parameters{}.Status), false},
	abi.IoctlDupObject:    {"dup", unsafe.Offsetof(abi.NVOS55Parameters{}.Status), false},
	abi.IoctlMapMemory:    {"map", unsafe.Offsetof(abi.NVOS33Parameters{}.Status), false},
	abi.IoctlUnmapMemory:  {"unmap", unsafe.Offsetof(abi.NVOS34Parameters{}.Status), true},
	abi.IoctlFree:         {"free", unsafe.Offsetof(abi.NVOS00Parameters{}.Status), true},
}

func (n *tapNode) Ioctl(req uintptr, arg unsafe.Pointer) error {
	r := requests[req]
	if r.undo {
		n.o.seen = append(n.o.seen, r.name)
		return n.Node.Ioctl(req, arg)
	}
	err := n.o.ask(r.name)
	if status, ok := err.(abi.Status); ok && r.status != 0 {
		*(*abi.Status)(unsafe.Add(arg, r.status)) = status
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "ioctl", Path: n.path, Err: err}
	}
	return n.Node.Ioctl(req, arg)
}

func (n *tapNode) Mmap(off int64, size, prot int) (dev.Mapping, error) {
	if err := n.o.ask("mmap"); err != nil {
		return nil, &fs.PathError{Op: "mmap", Path: n.path, Err: err}
	}
	m, err := n.Node.Mmap(off, size, prot)
	if err != nil {
		return nil, err
	}
	return &tapMapping{m, n.o}, nil
}

func (n *tapNode) Close() error {
	n.o.seen = append(n.o.seen, "close "+n.path)
	return n.Node.Close()
}

type tapMapping struct {
	dev.Mapping
	o *tap
}

func (m *tapMapping) Unmap() error {
	m.o.seen = append(m.o.seen, "munmap")
	return m.Mapping.Unmap()
}

// TestEveryFailure makes each call of a mapping fail in turn, with an errno and
// with a status, and checks that all is given back and the answer says why.
func TestEveryFailure(t *testing.T) {
	m := newMachine(t, config{})
	d := m.device(t, 0)
	for kind, causes := range map[gpu.Kind][]error{
		gpu.KindVirtual: {syscall.EIO, abi.NV_ERR_NOT_SUPPORTED},
		gpu.KindDevice:  {syscall.ENOMEM, abi.NV_ERR_INSUFFICIENT_PERMISSIONS},
	} {
		a := alloc(t, d, kind, 2<<20)
		for _, cause := range causes {
			calls := 0
			for ; ; calls++ {
				if failOnce(t, m, d, a, calls, cause) {
					break
				}
			}
			if calls < 8 {
				t.Errorf("%v memory was mapped with %d calls: the test missed some", kind, calls)
			}
		}
	}
}

// failOnce makes call k fail, and reports whether there was no such call.
func failOnce(t *testing.T, m *machine, d rm.GPU, a gpu.Addr, k int, cause error) bool {
	t.Helper()
	failed := ""
	o := &tap{OS: dev.Of(m.os), fail: func(n int, name string) error {
		if n != k {
			return nil
		}
		failed = name
		return cause
	}}
	mapper := rm.NewMapper(o, d, rm.NoBudget)
	w, err := mapper.Map(a, 4096)
	if err == nil {
		err = errors.Join(w.Close(), mapper.Close())
		if failed != "" || err != nil {
			t.Errorf("%s failed with %v, and the memory was mapped: %v", failed, cause, err)
		}
		return true
	}
	if u, ok := errors.AsType[*rm.Unavailable](err); !ok || u.Test == "" || !errors.Is(err, cause) {
		t.Errorf("%s failed with %v: error is %v", failed, cause, err)
	}
	if mapper.Mapped() != 0 {
		t.Errorf("%s failed: %d bytes of the budget are taken", failed, mapper.Mapped())
	}
	if err := mapper.Close(); err != nil {
		t.Errorf("%s failed: close: %v", failed, err)
	}
	m.idle(t)
	return false
}

// An interrupted request is repeated.
func TestInterrupted(t *testing.T) {
	m := newMachine(t, config{})
	d := m.device(t, 0)
	a := alloc(t, d, gpu.KindVirtual, 4096)
	o := &tap{OS: dev.Of(m.os), fail: func(n int, name string) error {
		if n%2 == 0 && !strings.HasPrefix(name, "open") && name != "mmap" {
			return syscall.EINTR
		}
		return nil
	}}
	w, err := newMapper(t, o, d, rm.NoBudget).Map(a, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestOrder: what is mapped is unmapped before it is freed, on every way out.
func TestOrder(t *testing.T) {
	m := newMachine(t, config{})
	d := m.device(t, 0)
	a := alloc(t, d, gpu.KindVirtual, 2<<20)
	end := "munmap, unmap, free"
	rest := "free, close /dev/nvidia0, free, close /dev/nvidiactl"
	for _, c := range []struct {
		name  string
		close func(w *rm.Mapping, m *rm.Mapper) error
	}{
		{"window first", func(w *rm.Mapping, m *rm.Mapper) error { return errors.Join(w.Close(), m.Close()) }},
		{"mapper first", func(w *rm.Mapping, m *rm.Mapper) error { return errors.Join(m.Close(), w.Close()) }},
	} {
		o := &tap{OS: dev.Of(m.os)}
		mapper := rm.NewMapper(o, d, rm.NoBudget)
		w, err := mapper.Map(a, 4096)
		if err != nil {
			t.Fatal(err)
		}
		want := "open /dev/nvidiactl, version, alloc, cards, open /dev/nvidia0, control, alloc, " +
			"control, open /dev/nvidia0, map, mmap, close /dev/nvidia0"
		if got := strings.Join(o.seen, ", "); got != want {
			t.Errorf("to map:\n%s\nwant\n%s", got, want)
		}
		o.seen = nil
		if err := c.close(w, mapper); err != nil {
			t.Error(err)
		}
		if got := strings.Join(o.seen, ", "); got != end+", "+rest {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, end+", "+rest)
		}
	}
}

// A mapping that cannot be removed keeps its object: freeing it would leave
// addresses that lead to somebody else's memory.
func TestStuckMapping(t *testing.T) {
	m := newMachine(t, config{})
	d := m.device(t, 0)
	a := alloc(t, d, gpu.KindVirtual, 4096)
	stuck := &stuckOS{OS: dev.Of(m.os)}
	o := &tap{OS: stuck}
	mapper := rm.NewMapper(o, d, rm.NoBudget)
	w, err := mapper.Map(a, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("close: %v", err)
	}
	if err := mapper.Close(); err != nil {
		t.Error(err)
	}
	if slices.Contains(o.seen, "free") || slices.Contains(o.seen, "unmap") {
		t.Errorf("something was freed under a mapping: %v", o.seen)
	}
	if m.rm.Objects() == 0 {
		t.Error("the object is gone")
	}
	if err := stuck.last.Unmap(); err != nil {
		t.Error(err)
	}
	for _, n := range stuck.nodes {
		if err := n.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
			t.Error(err)
		}
	}
}

// stuckOS refuses to unmap.
type stuckOS struct {
	dev.OS
	nodes []dev.Node
	last  dev.Mapping
}

func (o *stuckOS) Open(path string) (dev.Node, error) {
	n, err := o.OS.Open(path)
	o.nodes = append(o.nodes, n)
	return &stuckNode{n, o}, err
}

type stuckNode struct {
	dev.Node
	o *stuckOS
}

func (n *stuckNode) Mmap(off int64, size, prot int) (dev.Mapping, error) {
	m, err := n.Node.Mmap(off, size, prot)
	n.o.last = m
	return stuckMapping{m}, err
}

type stuckMapping struct{ dev.Mapping }

func (m stuckMapping) Unmap() error { return fmt.Errorf("munmap: %w", syscall.ENOMEM) }
