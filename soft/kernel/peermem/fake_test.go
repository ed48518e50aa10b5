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
	f.Client = Client{Name: name, Version: "1.0", Acquire: func(_ *p2p.Task, addr, size uint64) Memory {
		mine := addr >= first && addr+size <= end
		f.note("acquire %v", mine)
		if !mine {
			return nil
		}
		return f
	}}
	return f
}

func (f *fake) GetPages(_ *p2p.Task, write, force bool, ticket uint64) error {
	f.note("get %v %v", write, force)
	f.ticket = ticket
	return f.fail("get")
}

func (f *fake) DMAMap(*p2p.Task, *pcie.Function) ([]Segment, error) {
	f.note("map")
	if err := f.fail("map"); err != nil {
		return nil, err
	}
	return slices.Clone(f.gave), nil
}

func (f *fake) DMAUnmap(_ *p2p.Task, _ *pcie.Function, sg []Segment) {
	f.note("unmap")
	f.took = sg
}

func (f *fake) PutPages(*p2p.Task) { f.note("put") }
func (f *fake) PageSize() uint64   { return f.page }
func (f *fake) Release(*p2p.Task)  { f.note("release") }

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
