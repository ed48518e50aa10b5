package selftest

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/lab/inside"
)

// TestIOMMU looks for what a user-space driver needs: the drive in a group of
// its own.
func TestIOMMU(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_IOMMU")
	pci, err := inside.PCI(drive)
	if err != nil {
		t.Fatal(err)
	}
	members, err := os.ReadDir(filepath.Join(pci, "iommu_group", "devices"))
	if err != nil {
		t.Fatal(err)
	}
	if len(members) != 1 || members[0].Name() != filepath.Base(pci) {
		t.Errorf("the drive's group is %v", members)
	}
	if _, err := os.Stat("/dev/vfio/vfio"); err != nil {
		t.Error(err)
	}
}

// TestNetwork counts the cards and talks over the loopback.
func TestNetwork(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_NICS")
	for _, name := range []string{"eth0", "eth1"} {
		i, err := net.InterfaceByName(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if i.MTU != 4400 {
			t.Errorf("%s has MTU %d, want 4400", name, i.MTU)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestRemoteDrive checks that the file system's bytes cross RDMA.
func TestRemoteDrive(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_REMOTE")
	dev, err := inside.RemoteDisk("nqn.2026-01.io.culvert:" + drive)
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mounts), dev+" "+inside.Dir(drive)+" ") {
		t.Errorf("%s is not mounted at %s:\n%s", dev, inside.Dir(drive), mounts)
	}
	const counter = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"
	before := number(t, counter)
	const packets = 64
	f, err := os.Create(filepath.Join(inside.Dir(drive), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, packets*4096)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if n := number(t, counter) - before; n < packets {
		t.Errorf("the device sent %d packets for %d times 4096 bytes", n, packets)
	}
}
