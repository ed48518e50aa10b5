package pcie

import (
	"fmt"
	"testing"
)

// A machine is a fabric for tests: two host bridges; below the first a switch
// with two slots and a further root port, below the second a root port alone.
type machine struct {
	*Fabric
	left, right *Slot // of the switch
	sw          *Switch
	a, b        *Function // below the switch
	c           *Function // at another root port of the same bridge
	d           *Function // at the other bridge
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newMachine(t testing.TB, cfg Config, fw Forwarding) *machine {
	t.Helper()
	slot, function := must[*Slot](t), must[*Function](t)
	m := &machine{Fabric: New(cfg)}
	first, second := m.AddHostBridge(fw), m.AddHostBridge(fw)
	root := slot(first.AddRootPort("0000:00:01.0"))
	m.sw = must[*Switch](t)(root.AddSwitch("0000:01:00.0"))
	m.left, m.right = slot(m.sw.AddSlot("0000:02:00.0")), slot(m.sw.AddSlot("0000:02:01.0"))
	m.a, m.b = function(m.left.AddFunction("0000:03:00.0")), function(m.right.AddFunction("0000:04:00.0"))
	m.c = function(slot(first.AddRootPort("0000:00:02.0")).AddFunction("0000:05:00.0"))
	m.d = function(slot(second.AddRootPort("0000:80:01.0")).AddFunction("0000:81:00.0"))
	return m
}

// bar gives fn a window of n patterned bytes.
func bar(t testing.TB, fn *Function, n int) (*Window, []byte) {
	t.Helper()
	mem := pattern(n, 1)
	return must[*Window](t)(fn.AddBAR(uint64(n), Memory(mem))), mem
}

// host gives the fabric n patterned bytes of host memory.
func host(t testing.TB, f *Fabric, n int) (*Window, []byte) {
	t.Helper()
	mem := pattern(n, 2)
	return must[*Window](t)(f.AddHost(mem)), mem
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i) + 7*byte(i>>8)
	}
	return b
}

// traffic prints the bytes over each link and in host memory.
func (m *machine) traffic() string {
	s := ""
	for _, l := range []struct {
		name string
		link *link
	}{{"0000:01:00.0", &m.sw.link}, {m.a.name, &m.a.link}, {m.b.name, &m.b.link}, {m.c.name, &m.c.link}, {m.d.name, &m.d.link}} {
		if up, down := l.link.up.Load(), l.link.down.Load(); up+down > 0 {
			s += fmt.Sprintf("%s %d up %d down; ", l.name, up, down)
		}
	}
	h := m.HostTraffic()
	return s + fmt.Sprintf("host %d read %d written", h.Read, h.Written)
}
