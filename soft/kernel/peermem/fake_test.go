package peermem

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake is a client that owns a range of addresses and writes down its calls.
type fake struct {
	Client
	first, end uint64
	page       uint64
	calls      []string
	ticket     uint64
	gave       []Segment
	took       []Segment // what came back
	failing    string
}

func newFake(name string, first, end, page uint64) *fake {
	f := &fake{first: first, end: end, page: page}
	f.Client = Client{
		Name: name, Version: "1.0",
		Acquire: func(_ *p2p.Task, addr, size uint64) (any, bool) {
			mine := addr >= first && addr+size <= end
			f.note("acquire %v", mine)
			return f, mine
		},
		GetPages: func(_ *p2p.Task, _, _ uint64, write, force bool, _ any, ticket uint64) error {
			f.note("get %v %v", write, force)
			f.ticket = ticket
			return f.fail("get")
		},
		DMAMap: func(_ *p2p.Task, _ any, _ *pcie.Function) ([]Segment, error) {
			f.note("map")
			if err := f.fail("map"); err != nil {
				return nil, err
			}
			return slices.Clone(f.gave), nil
		},
		DMAUnmap: func(_ *p2p.Task, _ any, _ *pcie.Function, sg []Segment) error {
			f.note("unmap")
			f.took = sg
			return nil
		},
		PutPages: func(*p2p.Task, any, []Segment) { f.note("put") },
		PageSize: func(any) uint64 { return page },
		Release:  func(*p2p.Task, any) { f.note("release") },
	}
	return f
}

func (f *fake) note(format string, args ...any) {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fake) fail(call string) error {
	if f.failing == call {
		return syscall.EIO
	}
	return nil
}

// said is what was called since the last time.
func (f *fake) said() string {
	s := strings.Join(f.calls, ", ")
	f.calls = nil
	return s
}

func adapter(t interface{ Fatal(...any) }, mode pcie.IOMMU) *pcie.Function {
	root, err := pcie.New(pcie.Config{IOMMU: mode}).AddHostBridge(pcie.ForwardAll).AddRootPort("root")
	if err != nil {
		t.Fatal(err)
	}
	fn, err := root.AddFunction("hca")
	if err != nil {
		t.Fatal(err)
	}
	return fn
}

// plain is a process with ordinary memory in a range.
func plain(first, end uint64, pins *int) Config {
	return Config{Pin: func(_ *pcie.Function, addr, size uint64) ([]Segment, func(), error) {
		if addr < first || addr+size > end {
			return nil, nil, syscall.EFAULT
		}
		*pins++
		return []Segment{{addr, size}}, func() { *pins-- }, nil
	}}
}
