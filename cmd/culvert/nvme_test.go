package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft/kernel"
)

// pciMachine has drives in all states, and a device that is none.
func pciMachine() fstest.MapFS {
	m := fstest.MapFS{}
	add := func(pci, class, driver, group string) {
		at := "sys/bus/pci/devices/" + pci + "/"
		m[at+"class"] = &fstest.MapFile{Data: []byte(class + "\n")}
		if driver != "" {
			m[at+"driver"] = &fstest.MapFile{Data: []byte("../../../../bus/pci/drivers/" + driver), Mode: fs.ModeSymlink}
		}
		if group != "" {
			m[at+"iommu_group"] = &fstest.MapFile{Data: []byte("../../../../kernel/iommu_groups/" + group), Mode: fs.ModeSymlink}
		}
	}
	add("0000:01:00.0", "0x010802", "nvme", "7")
	add("0000:02:00.0", "0x010802", "vfio-pci", "8")
	add("0000:03:00.0", "0x010802", "nvme", "")
	add("0000:04:00.0", "0x010802", "", "10")
	add("0000:05:00.0", "0x010802", "libnvm helper", "11")
	add("0000:65:00.0", "0x030200", "nvidia", "9")
	return m
}

func TestNVMeList(t *testing.T) {
	o := kernel.New(pciMachine())
	var out bytes.Buffer
	if err := runNVMeList(dev.With(&machine.Machine{}, dev.Of(o)), true, &out); err != nil {
		t.Fatal(err)
	}
	var got []nvmeEntry
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := []nvmeEntry{
		{PCI: "0000:01:00.0", Driver: "nvme", Group: "7", Note: "in use by the kernel (fix: driverctl set-override 0000:01:00.0 vfio-pci)"},
		{PCI: "0000:02:00.0", Driver: "vfio-pci", Group: "8", Drive: "vfio:0000:02:00.0"},
		{PCI: "0000:03:00.0", Driver: "nvme", Note: "not in an IOMMU group (fix: turn the IOMMU on, which vfio needs)"},
		{PCI: "0000:04:00.0", Group: "10", Note: "not bound to a driver (fix: driverctl set-override 0000:04:00.0 vfio-pci)"},
		{PCI: "0000:05:00.0", Driver: "libnvm helper", Group: "11", Note: "bound to the libnvm module: one of the libnvm: drives below"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	if err := runNVMeList(dev.With(&machine.Machine{}, dev.Of(kernel.New(fstest.MapFS{}))), false, &out); err != nil || !strings.Contains(out.String(), "no NVMe controllers found") {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// A read-only file of a software drive is an error of permissions, not of the
// medium. The test runs as the owner of the file, without root's rights.
func TestNVMeReadOnly(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"disk": 0o400, "data": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 1<<20), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"write", "soft:disk", "data"}, {"bench", "soft:disk", "--write", "--force"}, {"read", "soft:disk", "data", "--blocks", "8"}} {
		cmd := exec.Command("culvert", append([]string{"nvme"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CULVERT_MACHINE=soft")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
			t.Skipf("needs user namespaces: %v", err)
		}
		if denied := strings.Contains(string(out), "culvert: open disk: permission denied\n"); denied != (err != nil) || denied != (args[0] != "read") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}
