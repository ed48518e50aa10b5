package selftest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
)

// Drives of the peer-to-peer guest: the first has memory of its own, the
// second sits below the same switch, the third on the root bus, where the
// kernel allows no peer traffic.
const (
	provider = "cmb"
	sibling  = "sibling"
	onRoot   = "onroot"
)

// peerDir is the kernel's directory about a drive's peer memory.
func peerDir(t *testing.T) string {
	t.Helper()
	inside.Wanted(t, "CULVERT_WANT_PEER")
	pci, err := inside.PCI(provider)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(pci, "p2pmem")
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("the kernel knows no peer memory (CONFIG_PCI_P2PDMA): %v", err)
	}
	return dir
}

// peerMemory maps n bytes of the provider's memory.
func peerMemory(t *testing.T, dir string, n int) []byte {
	t.Helper()
	f := open(t, filepath.Join(dir, "allocate"), os.O_RDWR)
	b, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}

func number(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func disk(t *testing.T, id string) *os.File {
	t.Helper()
	path, err := inside.Disk(id)
	if err != nil {
		t.Fatal(err)
	}
	return open(t, path, os.O_RDWR|unix.O_DIRECT)
}

// TestPeerTransfer moves data between drives and peer memory and compares it
// on both sides.
func TestPeerTransfer(t *testing.T) {
	dir := peerDir(t)
	const size = 256 << 10
	targets := map[string]*os.File{
		"own namespace": disk(t, provider),
		"file below the same switch": open(t, filepath.Join(inside.Dir(sibling), "f"),
			os.O_RDWR|os.O_CREATE|unix.O_DIRECT),
	}
	seed := uint64(10)
	for name, f := range targets {
		seed++
		t.Run(name, func(t *testing.T) {
			peer, host := peerMemory(t, dir, size), page(t, size)
			want := fill(make([]byte, size), seed)
			copy(peer, want)
			if n, err := pwrite(f, peer, 0); n != size || err != nil {
				t.Fatalf("write from peer memory: %d, %v", n, err)
			}
			if n, err := pread(f, host, 0); n != size || err != nil || !bytes.Equal(host, want) {
				t.Errorf("what the drive got: %d, %v, equal %v", n, err, bytes.Equal(host, want))
			}
			clear(peer)
			if n, err := pread(f, peer, 0); n != size || err != nil || !bytes.Equal(peer, want) {
				t.Errorf("read into peer memory: %d, %v, equal %v", n, err, bytes.Equal(peer, want))
			}
		})
	}
}

// TestPeerRefused asks for a transfer across the root complex.
func TestPeerRefused(t *testing.T) {
	dir := peerDir(t)
	peer := peerMemory(t, dir, 4096)
	fill(peer, 20)
	before := append([]byte(nil), peer...)
	f := disk(t, onRoot)
	if n, err := pread(f, peer, 0); !errors.Is(err, unix.EREMOTEIO) {
		t.Errorf("read: %d, %v, want EREMOTEIO", n, err)
	}
	if !bytes.Equal(peer, before) {
		t.Error("the refused read changed peer memory")
	}
	if n, err := pwrite(f, peer, 0); !errors.Is(err, unix.EREMOTEIO) {
		t.Errorf("write: %d, %v, want EREMOTEIO", n, err)
	}
}

// TestPeerAccounting watches the kernel's own count of free peer memory.
func TestPeerAccounting(t *testing.T) {
	dir := peerDir(t)
	const size = 1 << 20
	available := filepath.Join(dir, "available")
	before := number(t, available)
	t.Run("mapped", func(t *testing.T) {
		b := peerMemory(t, dir, size)
		b[0] = 1 // pages are taken when they are touched
		if now := number(t, available); now >= before {
			t.Errorf("%d bytes available, %d before the mapping", now, before)
		}
	})
	if now := number(t, available); now != before {
		t.Errorf("%d bytes available after munmap, %d before", now, before)
	}
}

// TestPeerUnplug pulls the provider out while its memory is mapped. It stands
// last because tests run in the order of the source.
func TestPeerUnplug(t *testing.T) {
	dir := peerDir(t)
	b := peerMemory(t, dir, 4096)
	b[0] = 1
	if err := inside.Unplug(provider); err != nil {
		t.Fatal(err)
	}
	if !faults(b) {
		t.Error("the mapping still answers after its drive was removed")
	}
}

// faults reports whether a load from b is answered with SIGBUS.
func faults(b []byte) (faulted bool) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() { faulted = recover() != nil }()
	sink = b[0]
	return false
}

var sink byte
