package fabrics

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"testing"

	abi "github.com/culvert-io/culvert/internal/abi/nvmf"
	"github.com/culvert-io/culvert/internal/endpoint"
	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/rdma/cm"
	"github.com/culvert-io/culvert/rdma/ibverbs"
)

// TestLabKernelTarget reads and writes a drive that the kernel's NVMe target offers over
// RDMA, on software RoCE.
func TestLabKernelTarget(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_FABRICS")
	at := netip.MustParseAddrPort("10.0.0.1:4420")
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(inside.SetAddress("eth0", netip.PrefixFrom(at.Addr(), 24)))
	ok(inside.AddRXE("rxe0", "eth0"))
	disk, err := inside.Disk("raw")
	ok(err)
	ok(inside.ExportNVMe(nqn, disk, at))
	p, err := ibverbs.Open()
	ok(err)
	dev := openDevice(t, p)
	ctx := t.Context()

	_, err = Connect(ctx, Config{Device: dev, NQN: nqn, Addr: netip.AddrPortFrom(at.Addr(), at.Port()+1)})
	if _, is := errors.AsType[*cm.RejectedError](err); !is {
		t.Errorf("a port where nobody listens: %v", err)
	}
	_, err = Connect(ctx, Config{Device: dev, NQN: nqn + ":none", Addr: at})
	if _, is := errors.AsType[*CommandError](err); !is {
		t.Errorf("a subsystem that does not exist: %v", err)
	}
	_, err = Connect(ctx, Config{Device: dev, NQN: nqn, Addr: at, Depth: 64})
	if r, is := errors.AsType[*RejectedError](err); !is || r.Reason != abi.RDMA_CM_INVALID_HSQSIZE.String() {
		t.Errorf("an admin queue that is too long: %v", err)
	}

	c, err := Connect(ctx, Config{Device: dev, NQN: nqn, Addr: at, Queues: 2})
	ok(err)
	list := c.Namespaces()
	if len(list) != 1 || list[0].Blocks()*uint64(list[0].BlockSize()) != 64<<20 {
		t.Fatalf("namespaces %+v of %s", list, c.Model())
	}
	const size, off = 1 << 20, 3 << 20
	m, err := endpoint.NewMemory(c.PD(), size, memoryAccess)
	ok(err)
	want := noise(size)
	copy(m.Bytes, want)
	ok(list[0].Write(ctx, m, 0, size, off))
	ok(list[0].Flush(ctx))
	onDisk := make([]byte, size)
	f, err := os.Open(disk)
	ok(err)
	_, err = f.ReadAt(onDisk, off)
	ok(errors.Join(err, f.Close()))
	if !bytes.Equal(onDisk, want) {
		t.Error("the drive does not have what was written")
	}
	clear(m.Bytes)
	ok(list[0].Read(ctx, m, 4096, size-4096, off+4096))
	if !bytes.Equal(m.Bytes[4096:], want[4096:]) || !bytes.Equal(m.Bytes[:4096], make([]byte, 4096)) {
		t.Error("what was read is not what was written")
	}
	err = list[0].Read(ctx, m, 0, 4096, 64<<20)
	if _, is := errors.AsType[*CommandError](err); !is {
		t.Errorf("a read behind the end: %v", err)
	}
	m.Close()
	ok(c.Close())
}
