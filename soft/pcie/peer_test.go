package pcie

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestPeersFollowTopology(t *testing.T) {
	for _, fw := range []Forwarding{ForwardNone, ForwardOwn, ForwardAll} {
		m := newMachine(t, Config{}, fw)
		twin := must[*Function](t)(m.left.AddFunction("0000:03:00.1"))
		own, other := NotSupported, NotSupported
		if fw != ForwardNone {
			own = ThroughHostBridge
		}
		if fw == ForwardAll {
			other = ThroughHostBridge
		}
		for _, tc := range []struct {
			x, y *Function
			acs  bool
			kind MapKind
			dist int
		}{
			{m.a, m.a, false, BusAddr, 0},
			{m.a, twin, false, BusAddr, 2},
			{m.a, m.b, false, BusAddr, 4},
			{m.a, m.b, true, own, 4},
			{m.a, m.c, false, own, 6},
			{m.a, m.d, false, other, 6},
			{m.c, m.d, false, other, 4},
		} {
			m.left.SetACS(tc.acs)
			kind, dist := Peers(tc.x, tc.y)
			if kind != tc.kind || dist != tc.dist {
				t.Errorf("forwarding %d, ACS %v: %s to %s: %v at %d, want %v at %d",
					fw, tc.acs, tc.x.Name(), tc.y.Name(), kind, dist, tc.kind, tc.dist)
			}
		}
		m.left.SetACS(false)
		m.right.SetACS(true)
		if kind, _ := Peers(m.a, m.b); kind != own {
			t.Errorf("forwarding %d: ACS above the provider: %v, want %v", fw, kind, own)
		}
	}
}

// randomFabric draws a tree of switches and devices.
func randomFabric(t *rapid.T) (*Fabric, []*Slot, []*Function) {
	f := New(Config{})
	var slots, open []*Slot
	var fns []*Function
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	bridges := []*HostBridge{}
	for range rapid.IntRange(1, 2).Draw(t, "bridges") {
		bridges = append(bridges, f.AddHostBridge(Forwarding(rapid.IntRange(0, 2).Draw(t, "forward"))))
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "roots") {
		s, err := rapid.SampledFrom(bridges).Draw(t, "bridge").AddRootPort(fmt.Sprintf("root%d", i))
		check(err)
		slots, open = append(slots, s), append(open, s)
	}
	for i := range rapid.IntRange(1, 8).Draw(t, "devices") {
		s := rapid.SampledFrom(open).Draw(t, "slot")
		if !s.used && !s.full && rapid.Bool().Draw(t, "switch") {
			sw, err := s.AddSwitch(fmt.Sprintf("switch%d", i))
			check(err)
			for j := range 2 {
				d, err := sw.AddSlot(fmt.Sprintf("slot%d.%d", i, j))
				check(err)
				slots, open = append(slots, d), append(open, d)
			}
			continue
		}
		if s.full {
			continue
		}
		fn, err := s.AddFunction(fmt.Sprintf("fn%d", i))
		check(err)
		fns = append(fns, fn)
	}
	for _, s := range slots {
		s.SetACS(rapid.IntRange(0, 3).Draw(t, "acs") == 0)
	}
	return f, slots, fns
}

// Invariant G: distance is symmetric; 0 only for the same function.
func TestDistanceIsSymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, _, fns := randomFabric(t)
		for _, x := range fns {
			for _, y := range fns {
				kind, dist := Peers(x, y)
				back, distBack := Peers(y, x)
				if kind != back || dist != distBack {
					t.Fatalf("%s to %s is %v at %d, and back %v at %d", x.Name(), y.Name(), kind, dist, back, distBack)
				}
				if (dist == 0) != (x == y) {
					t.Fatalf("%s to %s: distance %d", x.Name(), y.Name(), dist)
				}
			}
		}
	})
}

// Invariant G: with any ACS redirect on the path, BUS_ADDR becomes
// THRU_HOST_BRIDGE or NOT_SUPPORTED, never stays.
func TestACSNeverLeavesBusAddr(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, slots, fns := randomFabric(t)
		for _, s := range slots {
			s.SetACS(true)
		}
		for _, x := range fns {
			for _, y := range fns {
				if kind, _ := Peers(x, y); x != y && kind == BusAddr {
					t.Fatalf("%s to %s: %v although every port redirects", x.Name(), y.Name(), kind)
				}
			}
		}
	})
}

// Invariant G: a transfer is allowed if and only if the map kind is not
// NOT_SUPPORTED; otherwise no data moves.
func TestTransferAllowedIffSupported(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, _, fns := randomFabric(t)
		for _, y := range fns {
			mem := make([]byte, pageSize)
			b, err := y.AddBAR(pageSize, Memory(mem))
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range fns {
				kind, _ := Peers(x, y)
				e := Engine{Port: x}
				_, err := e.Write([]Range{{b.Base(), 1}}, []byte{byte(i + 1)})
				if (err == nil) != (kind != NotSupported) {
					t.Fatalf("%s to %s is %v, and a write gives %v", x.Name(), y.Name(), kind, err)
				}
				if moved := mem[0] == byte(i+1); moved != (err == nil) {
					t.Fatalf("%s to %s: %v, but byte is %d", x.Name(), y.Name(), err, mem[0])
				}
			}
		}
	})
}
