package tensor

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// hostMemory returns memory for the tensors of a plan, and their addresses.
func hostMemory(p *Plan) (mem [][]byte, addresses []gpu.Addr) {
	for i := range p.Tensors {
		b := make([]byte, p.Tensors[i].Len+1)
		mem = append(mem, b[:p.Tensors[i].Len])
		addresses = append(addresses, gpu.Addr(uintptr(unsafe.Pointer(&b[0]))))
	}
	return mem, addresses
}

// A host load puts the same bytes into memory of the caller, without a GPU.
func TestHostLoad(t *testing.T) {
	m := transformer(t)
	for _, sel := range []Selection{{}, {Tensor: Rank{1, 2}}} {
		p := planFor(t, m, sel, []int{0}, &PlanOptions{PerTensor: true, MaxRead: pageSize})
		mem, addresses := hostMemory(p)
		l, err := NewHostLoad(p, addresses, &LoadOptions{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		verified := 0
		for x, err := range l.Tensors(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if x.Verified {
				verified++
			}
		}
		whole := 0
		for i := range p.Tensors {
			x := &p.Tensors[i]
			if x.Whole != nil {
				continue
			}
			whole++
			if !bytes.Equal(mem[i], readTensor(t, m, x.Name)) {
				t.Errorf("%s has other bytes", x.Name)
			}
		}
		r := l.Report()
		if r.Tensors != len(p.Tensors) || verified != whole || r.Bytes != p.Totals().Read {
			t.Errorf("%d tensors, %d verified, %d bytes: want %d, %d, %d", r.Tensors, verified, r.Bytes, len(p.Tensors), whole, p.Totals().Read)
		}
		for _, f := range r.Files {
			if f.Receipt.By[route.Host] != f.Receipt.Bytes || f.Receipt.Host.Bytes != f.Receipt.Bytes {
				t.Errorf("receipt %v", &f.Receipt)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestHostLoadErrors(t *testing.T) {
	m, _ := damaged(t, "lm_head.weight", 100)
	p := planFor(t, m, Selection{}, []int{0}, &PlanOptions{PerTensor: true})
	_, addresses := hostMemory(p)
	if _, err := NewHostLoad(p, addresses[1:], nil); err == nil {
		t.Error("an address is missing")
	}
	if _, err := NewHostLoad(p, make([]gpu.Addr, len(addresses)), nil); err == nil {
		t.Error("addresses are 0")
	}
	if _, err := NewHostLoad(planFor(t, m, Selection{}, []int{0}, nil), addresses, nil); err == nil || !strings.Contains(err.Error(), "one allocation per tensor") {
		t.Errorf("one allocation for all: %v", err)
	}
	run := func(addresses []gpu.Addr, before func()) error {
		l, err := NewHostLoad(p, addresses, &LoadOptions{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		before()
		for _, err := range l.Tensors(t.Context()) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := run(addresses, func() {}); !errors.Is(err, ErrChecksum) || !strings.Contains(err.Error(), "in host memory") {
		t.Errorf("damaged: %v", err)
	}
	wild := make([]gpu.Addr, len(addresses))
	for i := range wild {
		wild[i] = 4096
	}
	if err := run(wild, func() {}); err == nil || !strings.Contains(err.Error(), "bad address") {
		t.Errorf("wild addresses: %v", err)
	}
	err := run(addresses, func() {
		for _, f := range m.Files {
			if err := os.Truncate(f.Path, f.Data+10); err != nil {
				t.Fatal(err)
			}
		}
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "shorter than when it was opened") {
		t.Errorf("a file that became shorter: %v", err)
	}
}
