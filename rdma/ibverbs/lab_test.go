package ibverbs

import (
	"net/netip"
	"sync"
	"testing"

	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/rdmatest"
)

// rxe makes the software RoCE device of the guest, once.
var rxe = sync.OnceValue(func() error {
	if err := inside.SetAddress("eth0", netip.MustParsePrefix("10.0.0.1/24")); err != nil {
		return err
	}
	return inside.AddRXE("rxe0", "eth0")
})

func labProvider(t *testing.T) *Provider {
	t.Helper()
	inside.Wanted(t, "CULVERT_WANT_VERBS")
	if err := rxe(); err != nil {
		t.Fatal(err)
	}
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// rxeQuirks is where Linux's software RoCE differs from the specification: 6.12 has them.
var rxeQuirks = rdmatest.Quirks{
	LocalErrorFlushes: true,
	ReceiveTooSmall:   [2]rdma.Status{rdma.RemOpErr, rdma.LocQPOpErr},
}

// TestLabConformance runs the suite of all providers on the kernel's software RoCE.
func TestLabConformance(t *testing.T) {
	rdmatest.Run(t, rdmatest.Backend{Quirks: rxeQuirks, Open: func(t *testing.T) (a, b rdma.Device) {
		d, err := labProvider(t).Open("rxe0")
		if err != nil {
			t.Fatal(err)
		}
		return d, d
	}})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
