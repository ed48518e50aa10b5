//go:build linux && (amd64 || arm64) && !nodl

package ibverbs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	abi "github.com/culvert-io/culvert/internal/abi/ibverbs"
	"github.com/culvert-io/culvert/internal/dl"
	"github.com/culvert-io/culvert/rdma"
)

// sent is a request that the fake library was given.
type sent struct {
	ID, Op, Flags, Imm, NumSGE uint64
	SGE                        [2]abi.SGE
	Remote                     [4]uint64
}

// state is what testdata/fakeverbs.c records, and what tests set.
type state struct {
	Registered   [8]uint64
	Sends, Limit uint64
	Send         [128]sent
	Recvs        uint64
	Recv         [128]sent
	Attr         [18]uint64
	Mask         uint64
	Caps         [5]uint64
	SigAll       uint64
	Acks         uint64
	Solicited    uint64
	Kicks        uint64
	DeviceCount  uint64
	ListErrno    uint64
	RegErrno     uint64
}

// A fake is a provider on a fake library of its own.
type fake struct {
	*Provider
	*state
	event dl.Func
}

// compiled is the fake library.
var compiled = sync.OnceValues(func() ([]byte, error) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fakeverbs-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	so := filepath.Join(dir, "libfakeverbs.so")
	if out, err := exec.Command(gcc, "-shared", "-fPIC", "-O1", "-o", so, "testdata/fakeverbs.c").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(so)
})

// openFake loads a copy of the library, which has a state of its own.
func openFake(t *testing.T) *fake {
	t.Helper()
	lib, err := compiled()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("needs gcc to compile a library to load")
	}
	must(t, err)
	so := filepath.Join(t.TempDir(), "libfakeverbs.so")
	must(t, os.WriteFile(so, lib, 0o600))
	p, err := OpenLibrary(so)
	if err != nil {
		t.Fatal(err)
	}
	l, err := dl.Open(so)
	must(t, err)
	get, err := l.Sym("fake_state")
	if err != nil {
		t.Fatal(err)
	}
	event, err := l.Sym("fake_event")
	if err != nil {
		t.Fatal(err)
	}
	return &fake{p, at[state](get.Call()), event}
}

// objects are one of each.
type objects struct {
	dev *Device
	pd  *PD
	cq  *CQ
	qp  *QP
}

func (f *fake) objects(t *testing.T) objects {
	t.Helper()
	d, err := f.Open("")
	must(t, err)
	pd, err := d.AllocPD()
	must(t, err)
	cq, err := d.CreateCQ(64)
	must(t, err)
	qp, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq, Caps: rdma.QPCaps{SendSGE: 2, RecvSGE: 2}})
	must(t, err)
	o := objects{d.(*Device), pd.(*PD), cq.(*CQ), qp.(*QP)}
	t.Cleanup(func() {
		for _, c := range []interface{ Close() error }{o.qp, o.cq, o.pd, o.dev, f.Provider} {
			if err := c.Close(); err != nil {
				t.Errorf("close %T: %v", c, err)
			}
		}
	})
	return o
}

// ready brings the queue pair to RTS.
func (o objects) ready(t *testing.T) {
	t.Helper()
	own := rdma.QPInfo{MTU: 3, PSN: 0x123456, RDAtomic: 4}
	must(t, rdma.Connect(o.qp, own, rdma.QPInfo{MTU: 5, QPNum: 0x77, PSN: 0xabcdef, RDAtomic: 9}, rdma.GIDChoice{}, rdma.Options{}))
}
