package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/dev"
)

// A target is a part of a table of device mapper.
type target struct {
	sectors uint64
	kind    string
	params  string
}

// Requests of /dev/mapper/control, linux/dm-ioctl.h.
const (
	dmCreate  = 0xc138fd03
	dmRemove  = 0xc138fd04
	dmResume  = 0xc138fd06 // DM_DEV_SUSPEND without its flag
	dmLoad    = 0xc138fd09
	dmHeader  = 312
	dmSpec    = 40
	dmBufSize = 4096
)

// A dmCall is struct dm_ioctl with its data.
type dmCall struct {
	Version                                       [3]uint32
	Size, Start, Targets, Opened, Flags, Event, _ uint32
	Dev                                           uint64
	Name                                          [128]byte
	UUID                                          [129]byte
	_                                             [7]byte
	Data                                          [dmBufSize - dmHeader]byte
}

// mapped makes a device mapper device. It skips the test if the kernel does not have
// one of the targets.
func mapped(t *testing.T, table ...target) string {
	t.Helper()
	control, err := dev.Host().Open("/dev/mapper/control")
	if err != nil {
		t.Skip("needs a kernel with device mapper: ", err)
	}
	t.Cleanup(func() { control.Close() })
	name := fmt.Sprintf("stack%d", len(entries(t, "/sys/class/block")))
	call := func(req uintptr, fill func(*dmCall)) (*dmCall, error) {
		c := &dmCall{Version: [3]uint32{4, 0, 0}, Size: dmBufSize, Start: dmHeader}
		copy(c.Name[:], name)
		if fill != nil {
			fill(c)
		}
		return c, dev.Ioctl(control, req, c)
	}
	made, err := call(dmCreate, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := call(dmRemove, nil); err != nil {
			t.Error(err)
		}
	})
	_, err = call(dmLoad, func(c *dmCall) { c.load(table) })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // no such target, no such cipher
		t.Skipf("needs a kernel with the target of %v: %v", table, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := call(dmResume, nil); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/dev/dm-%d", made.Dev&0xff)
}

// load encodes a table.
func (c *dmCall) load(table []target) {
	c.Targets = uint32(len(table))
	at, start := 0, uint64(0)
	for _, x := range table {
		spec := c.Data[at:]
		size := (dmSpec + len(x.params) + 1 + 7) &^ 7
		binary.NativeEndian.PutUint64(spec, start)
		binary.NativeEndian.PutUint64(spec[8:], x.sectors)
		binary.NativeEndian.PutUint32(spec[20:], uint32(size))
		copy(spec[24:40], x.kind)
		copy(spec[dmSpec:], x.params)
		at, start = at+size, start+x.sectors
	}
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
