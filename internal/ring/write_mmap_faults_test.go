package ring

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStoredChangesFile checks that a file that was stored into says when it was changed.
func TestStoredChangesFile(t *testing.T) {
	r, files, f, b, data := newOverwrite(t)
	stores := overwritten(files, nil)
	past := []unix.Timeval{{Sec: 1}, {Sec: 1}}
	if err := unix.Futimes(f.buffered, past); err != nil {
		t.Fatal(err)
	}
	res, err := run1(r, Request{Write: true, Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: overLen})
	if err != nil || res.N != overLen || stores.Load() == 0 || !bytes.Equal(f.content(t), data) {
		t.Fatalf("%+v, %v, %d stores", res, err, stores.Load())
	}
	if err := unix.Fdatasync(f.buffered); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(f.buffered, &st); err != nil || time.Since(time.Unix(st.Mtim.Unix())) > time.Hour {
		t.Errorf("the file was changed at %v, %v", time.Unix(st.Mtim.Unix()), err)
	}
}

// smallDisk opens a file on a disk of its own, of n bytes, all in memory.
func smallDisk(t *testing.T, n string) *testFile {
	t.Helper()
	type opened struct {
		fd  int
		err error
	}
	ch, dir := make(chan opened), t.TempDir()
	go func() {
		runtime.LockOSThread() // for good: the thread ends, and the mount with it
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount("none", dir, "tmpfs", 0, "size="+n)
		}
		fd := -1
		if err == nil {
			fd, err = unix.Open(dir+"/file", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		}
		ch <- opened{fd, err}
	}()
	o := <-ch
	if errors.Is(o.err, unix.EPERM) || errors.Is(o.err, unix.EACCES) {
		t.Skipf("needs the right to mount a file system: %v", o.err)
	}
	if o.err != nil {
		t.Fatal(o.err)
	}
	t.Cleanup(func() { unix.Close(o.fd) })
	return &testFile{buffered: o.fd, direct: -1}
}

// boldFiles stores whatever it is given.
type boldFiles struct{ oddFiles }

func (*boldFiles) CanStore(int, int64, int64, int) bool { return true }

// A hole that is stored into needs room like any other write. Where there is none
// the write says so, and the process lives.
func TestStoredIntoFullDisk(t *testing.T) {
	f := smallDisk(t, "10m")
	const hole = 6 << 20 // from here on
	if _, err := unix.Pwrite(f.buffered, noise(1, hole), 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(f.buffered, overLen+8<<20); err != nil {
		t.Fatal(err)
	}
	r := openRing(t, openGPU(t), Config{Budget: 4 << 20, Slot: 64 << 10, Workers: 3, sys: &boldFiles{}})
	b, data := newBuffer(t, r.dev, overLen+8<<20), noise(2, overLen+8<<20)
	b.set(t, data)
	res, err := run1(r, Request{Write: true, Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: int64(len(data))})
	if !errors.Is(err, unix.ENOSPC) || res.N < hole || res.N > 10<<20 || res.Retries == 0 {
		t.Fatalf("%+v, %v, want no room behind %d", res, err, hole)
	}
	got := make([]byte, res.N)
	if _, err := unix.Pread(f.buffered, got, 0); err != nil || !bytes.Equal(got, data[:res.N]) {
		t.Errorf("wrong bytes among the first %d, %v", res.N, err)
	}
}

// Files that may not be written to are not stored into either.
func TestSealedFile(t *testing.T) {
	fd, err := unix.MemfdCreate("sealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	old := noise(1, overLen)
	if _, err := unix.Pwrite(fd, old, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != nil {
		t.Fatal(err)
	}
	r := openRing(t, openGPU(t), Config{Budget: 4 << 20, Slot: 64 << 10, Workers: 3, sys: &boldFiles{}})
	b := newBuffer(t, r.dev, overLen)
	res, err := run1(r, Request{Write: true, Buffered: fd, Direct: -1, Addr: b.addr(), Len: overLen})
	if !errors.Is(err, os.ErrPermission) || res.N != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if got := (&testFile{buffered: fd}).content(t); !bytes.Equal(got, old) {
		t.Error("a sealed file has changed")
	}
}

// Where another handler handles faults, nothing is stored that could fault.
func TestForeignFaultHandler(t *testing.T) {
	f := newFile(t, noise(1, 4*page))
	if !(kernel{}).CanStore(f.buffered, 0, 4*page, tmpfsWorkers) {
		t.Skip("needs a directory for temporary files on ext4, xfs, overlayfs or tmpfs")
	}
	ours := swapSIGBUS(&sigaction{}) // the default: to end the process
	got := (kernel{}).CanStore(f.buffered, 0, 4*page, tmpfsWorkers)
	swapSIGBUS(&ours)
	if got {
		t.Error("a file would be stored into")
	}
	if !(kernel{}).CanStore(f.buffered, 0, 4*page, tmpfsWorkers) {
		t.Error("not even with Go's handler back")
	}
}
