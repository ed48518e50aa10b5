package cufile_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/route"
)

// A transfer that fails names its file once, whatever route it took, and the cause
// is there for errors.Is.
func TestFailureNamesTheFileOnce(t *testing.T) {
	f := newFixture(t, softConfig(), 64<<10)
	buf := f.buffer(8192)
	for _, id := range f.writing() {
		h := f.sealed(buf.Span().Len)
		if err := h.Require(0, id); err != nil {
			t.Logf("a file in memory does not go by %v here: %v", id, err)
			h.Close()
			continue
		}
		// nvidia-fs writes what it has read from once.
		if _, err := h.ReadAt(context.Background(), buf.Span(), 0); err != nil {
			t.Fatal(err)
		}
		_, err := h.WriteAt(context.Background(), buf.Span(), 0)
		f.namedOnce(id, err)
		reqs := []cufile.Request{{Dir: route.Write, File: h, Mem: buf.Span()}}
		f.namedOnce(id, f.drv.Do(context.Background(), reqs, make([]route.Receipt, 1)))
		h.Close()
	}
}

const sealedName = "memfd:sealed" // the kernel puts more around it

// sealed is a file of n bytes that refuses to be written to.
func (f *fixture) sealed(n uint64) *cufile.File {
	f.t.Helper()
	fd, err := unix.MemfdCreate("sealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		f.t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "sealed")
	defer file.Close()
	err = file.Truncate(int64(n))
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	h, err := f.drv.Register(file)
	if err != nil {
		f.t.Fatal(err)
	}
	return h
}

func (f *fixture) namedOnce(id route.ID, err error) {
	f.t.Helper()
	if !errors.Is(err, unix.EPERM) {
		f.t.Errorf("%v: want %v: %v", id, unix.EPERM, err)
		return
	}
	if n := strings.Count(err.Error(), sealedName); n != 1 {
		f.t.Errorf("%v: the file is named %d times: %v", id, n, err)
	}
}
