package lab

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bzImage wraps a payload as the kernel's build does: setup sectors, a stub,
// the payload with its unpacked size behind it.
func bzImage(payload []byte) []byte {
	const setup, stub = 2, 100
	b := make([]byte, (setup+1)*512+stub)
	b[bzSetupSectors] = setup
	copy(b[bzMagic:], "HdrS")
	le := binary.LittleEndian
	le.PutUint16(b[bzVersion:], 0x20f)
	le.PutUint32(b[bzPayloadOffset:], stub)
	le.PutUint32(b[bzPayloadLength:], uint32(len(payload)+4))
	b = append(b, payload...)
	return append(b, 1, 2, 3, 4, 0xff, 0xff)
}

func gzipped(b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(b)
	w.Close()
	return z.Bytes()
}

var fakeELF = []byte("\x7fELF and the kernel")

func TestExtractVmlinux(t *testing.T) {
	got, err := extractVmlinux(bzImage(gzipped(fakeELF)))
	if err != nil || !bytes.Equal(got, fakeELF) {
		t.Errorf("gzip: %q, %v", got, err)
	}
	for _, tool := range []string{"xz", "zstd"} {
		t.Run(tool, func(t *testing.T) {
			if _, err := exec.LookPath(tool); err != nil {
				t.Skipf("needs %s", tool)
			}
			packed, err := filter(fakeELF, tool, "-c")
			if err != nil {
				t.Fatal(err)
			}
			got, err := extractVmlinux(bzImage(packed))
			if err != nil || !bytes.Equal(got, fakeELF) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestExtractVmlinuxRefuses(t *testing.T) {
	old := bzImage(gzipped(fakeELF))
	binary.LittleEndian.PutUint16(old[bzVersion:], 0x207)
	cut := bzImage(gzipped(fakeELF))
	tests := []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "no setup header"},
		{"ELF", fakeELF, "no setup header"},
		{"old", old, "boot protocol 0x207"},
		{"cut", cut[:len(cut)-20], "truncated"},
		{"unknown", bzImage([]byte("LZMA?!")), "unknown compression"},
		{"not ELF", bzImage(gzipped([]byte("MZ"))), "not an ELF file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := extractVmlinux(tt.b)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want %q", err, tt.want)
			}
		})
	}
}

func FuzzPayload(f *testing.F) {
	f.Add(bzImage([]byte("payload")))
	f.Fuzz(func(t *testing.T, b []byte) { bzPayload(b) })
}

func TestReadyKernel(t *testing.T) {
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip("needs xz (package xz-utils)")
	}
	dir := t.TempDir()
	packed, err := filter(fakeELF, "xz", "-c")
	if err != nil {
		t.Fatal(err)
	}
	plain, xz := filepath.Join(dir, "vmlinux"), filepath.Join(dir, "vmlinux-1.2.xz")
	for name, b := range map[string][]byte{plain: fakeELF, xz: packed} {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	k, err := readyKernel(dir, plain)
	if err != nil || k.Image != plain {
		t.Errorf("plain kernel: %+v, %v", k, err)
	}
	for range 2 { // unpacked, then found
		k, err = readyKernel(dir, xz)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(k.Image); err != nil || !bytes.Equal(b, fakeELF) {
			t.Errorf("unpacked kernel: %q, %v", b, err)
		}
	}
	if _, err := readyKernel(dir, filepath.Join(dir, "gone")); err == nil {
		t.Error("a missing kernel was accepted")
	}
}

func TestNewestImage(t *testing.T) {
	const list = `linux-image-6.1.0-9-amd64 - Linux 6.1 for 64-bit PCs (signed)
linux-image-6.1.0-55-amd64 - Linux 6.1 for 64-bit PCs (signed)
linux-image-6.12.9+deb12-amd64 - Linux 6.12 for 64-bit PCs (signed)
linux-image-6.12.117+deb12-amd64 - Linux 6.12 for 64-bit PCs (signed)
linux-image-6.12.118+deb12-amd64-dbg - Debug symbols for linux-image-6.12.118+deb12-amd64
linux-image-6.12.118+deb12-amd64-unsigned - Linux 6.12 for 64-bit PCs
linux-image-6.12.118+deb12-cloud-amd64 - Linux 6.12 for x86-64 cloud (signed)
linux-image-6.12.118+deb12-rt-amd64 - Linux 6.12 for 64-bit PCs (signed), PREEMPT_RT
linux-image-amd64 - Linux for 64-bit PCs (meta-package)
`
	if got := newestImage(list); got != "linux-image-6.12.117+deb12-amd64" {
		t.Errorf("found %q", got)
	}
	if got := newestImage("linux-image-amd64 - Linux\n"); got != "" {
		t.Errorf("found %q where there is none", got)
	}
}

func TestHasFeature(t *testing.T) {
	dir := t.TempDir()
	image, modules := filepath.Join(dir, "vmlinux"), filepath.Join(dir, "modules")
	for name, b := range map[string]string{
		image: "\x00p2pmem\x00nfsd\x00", filepath.Join(modules, "modules.dep"): "kernel/fs/nfsd/nfsd.ko.xz:\n", filepath.Join(modules, "modules.builtin"): "",
		dir + "/none/modules.dep": "", dir + "/none/modules.builtin": "",
	} {
		if err := writeFile(name, []byte(b)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		modules string
		f       Feature
		want    bool
	}{
		{"", PeerDMA, true},
		{"", MemoryNodes, false},
		{"", NFSServer, true},
		{modules, NFSServer, true},
		{dir + "/none", NFSServer, false},
		{modules, MemoryGroups, false},
	} {
		if got, err := (Kernel{Image: image, Modules: c.modules}).Has(c.f); got != c.want || err != nil {
			t.Errorf("%s with modules %q: %v, %v", c.f.Name, c.modules, got, err)
		}
	}
	if _, err := (Kernel{Image: image + ".gone"}).Has(PeerDMA); err == nil {
		t.Error("an image that is gone has answered")
	}
}

func TestModuleOrder(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "modules.dep"), []byte(`kernel/fs/xfs/xfs.ko.xz: kernel/lib/libcrc32c.ko.xz kernel/crypto/crc.ko.xz
kernel/lib/libcrc32c.ko.xz: kernel/crypto/crc.ko.xz
kernel/crypto/crc.ko.xz:
kernel/drivers/nvme/host/nvme.ko.xz: kernel/drivers/nvme/host/nvme-core.ko.xz
kernel/drivers/nvme/host/nvme-core.ko.xz:
`), 0o644)
	os.WriteFile(filepath.Join(dir, "modules.builtin"), []byte("kernel/drivers/virtio/virtio-pci.ko\n"), 0o644)
	table, err := readModuleTable(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := table.order([]string{"virtio_pci", "nvme-core", "xfs", "nvme"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"kernel/drivers/nvme/host/nvme-core.ko.xz",
		"kernel/crypto/crc.ko.xz", "kernel/lib/libcrc32c.ko.xz", "kernel/fs/xfs/xfs.ko.xz",
		"kernel/drivers/nvme/host/nvme.ko.xz",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("load order (-want +got):\n%s", diff)
	}
	if _, err := table.order([]string{"zfs"}); err == nil || !strings.Contains(err.Error(), "no module zfs") {
		t.Errorf("unknown module: %v", err)
	}
}

func TestAccelerator(t *testing.T) {
	dir := t.TempDir()
	kvm := filepath.Join(dir, "kvm")
	os.WriteFile(kvm, nil, 0o600)
	for flags, want := range map[string]string{
		"fpu vmx sse":  "kvm",
		"fpu sse svm":  "kvm",
		"fpu vmxnet":   "tcg,thread=multi",
		"fpu sse svme": "tcg,thread=multi",
	} {
		cpuinfo := filepath.Join(dir, "cpuinfo")
		os.WriteFile(cpuinfo, []byte("processor\t: 0\nmodel name\t: a vmx in disguise\nflags\t\t: "+flags+"\n"), 0o600)
		if got := accelerator(cpuinfo, kvm); got != want {
			t.Errorf("flags %q: %s, want %s", flags, got, want)
		}
		if got := accelerator(cpuinfo, kvm+".gone"); got != "tcg,thread=multi" {
			t.Errorf("flags %q without the device: %s", flags, got)
		}
	}
}
