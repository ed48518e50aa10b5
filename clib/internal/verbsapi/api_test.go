package verbsapi

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/soft"
)

func open(t *testing.T) *API {
	t.Helper()
	m, err := machine.FromSoft(soft.Config{Memory: 64 << 20}, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return New(func() (*machine.Machine, error) { return m, nil })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// context opens the adapter, as ibv_open_device does.
func (a *API) context(t *testing.T) handle.ID {
	t.Helper()
	name, id := [8]byte([]byte("soft0\x00\x00\x00")), new(handle.ID)
	must(t, a.Open(cmem.PtrTo(&name), cmem.PtrTo(id)))
	return *id
}

// All contexts of a process have the GID of one device, so that it does not matter which
// of them a program asks.
func TestContextsShareAGID(t *testing.T) {
	a := open(t)
	c1, c2 := a.context(t), a.context(t)
	gid := func(c handle.ID) [gidEntrySize]byte {
		e := new([gidEntrySize]byte)
		n, err := a.QueryGIDs(c, 1, cmem.PtrTo(e), 1)
		if err != nil || n != 1 {
			t.Fatal(n, err)
		}
		return *e
	}
	if gid(c1) != gid(c2) {
		t.Errorf("%x and %x", gid(c1), gid(c2))
	}
	must(t, a.Close(c1))
	gid(c2) // is open
	must(t, a.Close(c2))
	if err := a.Close(c2); Errno(err) != int32(unix.EINVAL) {
		t.Errorf("second close: %v", err)
	}
}

// Objects in use cannot be destroyed. Closing their context ends them all, and those of
// no other.
func TestCloseEndsWhatIsLeft(t *testing.T) {
	a := open(t)
	ctx, other := a.context(t), a.context(t)
	pd, kept, cq, qp, mr := new(handle.ID), new(handle.ID), new(handle.ID), new(handle.ID), new(handle.ID)
	must(t, a.AllocPD(ctx, cmem.PtrTo(pd)))
	must(t, a.AllocPD(other, cmem.PtrTo(kept)))
	must(t, a.CreateCQ(ctx, 16, 0, cmem.PtrTo(cq)))
	mem, key, num := new([4096]byte), new(uint32), new(uint32)
	must(t, a.RegMR(*pd, uint64(cmem.PtrTo(mem)), 4096, uint64(cmem.PtrTo(mem)), uint32(rdma.LocalWrite), cmem.PtrTo(mr), cmem.PtrTo(key)))
	must(t, a.CreateQP(*pd, *cq, *cq, cmem.PtrTo(&[5]uint32{1, 1, 1, 1, 0}), 0, cmem.PtrTo(qp), cmem.PtrTo(num)))
	for what, err := range map[string]error{"domain": a.DeallocPD(*pd), "queue": a.DestroyCQ(*cq)} {
		if Errno(err) != int32(unix.EBUSY) {
			t.Errorf("%s in use: %v", what, err)
		}
	}
	must(t, a.Close(ctx))
	for what, err := range map[string]error{
		"pair": a.DestroyQP(*qp), "region": a.DeregMR(*mr), "queue": a.DestroyCQ(*cq), "domain": a.DeallocPD(*pd),
	} {
		if Errno(err) != int32(unix.EINVAL) {
			t.Errorf("%s after the context was closed: %v", what, err)
		}
	}
	must(t, a.DeallocPD(*kept))
	must(t, a.Close(other))
	if len(a.open) != 0 {
		t.Error("the device is still open")
	}
}

// A list of requests stops at the first that is refused, and names it.
func TestRefusedRequest(t *testing.T) {
	a := open(t)
	ctx, pd, cq, qp, num := a.context(t), new(handle.ID), new(handle.ID), new(handle.ID), new(uint32)
	must(t, a.AllocPD(ctx, cmem.PtrTo(pd)))
	must(t, a.CreateCQ(ctx, 64, 0, cmem.PtrTo(cq)))
	must(t, a.CreateQP(*pd, *cq, *cq, cmem.PtrTo(&[5]uint32{1, 20, 1, 1, 0}), 0, cmem.PtrTo(qp), cmem.PtrTo(num)))
	attr := new([qpAttrSize]byte)
	attr[0], attr[129] = byte(rdma.Init), 1
	must(t, a.ModifyQP(*qp, cmem.PtrTo(attr), uint32(rdma.ToInit)))
	// struct ibv_recv_wr: 32 bytes each. There is room for 20.
	wrs := new([30][4]uint64)
	at := func(i int) cmem.Ptr { return cmem.PtrTo(wrs) + cmem.Ptr(i*32) }
	for i := range len(wrs) - 1 {
		wrs[i] = [4]uint64{uint64(i), uint64(at(i + 1)), 0, 0}
	}
	bad := new(cmem.Ptr)
	if err := a.PostRecv(*qp, at(0), cmem.PtrTo(bad)); Errno(err) != int32(unix.ENOMEM) || *bad != at(20) {
		t.Errorf("full queue: %v at %d, want 20", err, (*bad-at(0))/32)
	}
	wrs[3][3] = 1 << 20 // SGEs
	wrs[3][1] = 0
	if err := a.PostRecv(*qp, at(3), cmem.PtrTo(bad)); Errno(err) != int32(unix.EINVAL) || *bad != at(3) {
		t.Errorf("too many SGEs: %v at %d, want 3", err, (*bad-at(0))/32)
	}
	must(t, a.Close(ctx))
}
