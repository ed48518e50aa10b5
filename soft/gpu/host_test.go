package gpu_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// status is a number of kB in /proc/self/status.
func status(t testing.TB, field string) (kb int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, rest, ok := strings.Cut(string(text), "\n"+field+":")
	if _, err := fmt.Sscan(rest, &kb); err != nil || !ok {
		t.Fatalf("no %s in /proc/self/status", field)
	}
	return kb
}

// needLocked skips the test if n bytes cannot be locked.
func needLocked(t *testing.T, n int) {
	t.Helper()
	m := pages(t, n)
	defer unmap(t, m)
	if err := unix.Mlock(m); err != nil {
		t.Skipf("needs RLIMIT_MEMLOCK of %d bytes: %v", n, err)
	}
}

func TestPinnedMemoryIsReallyLocked(t *testing.T) {
	needLocked(t, 2<<20)
	_, x := device(t, softgpu.Config{})
	before := status(t, "VmLck")
	h := alloc(t, x, gpu.KindHost, 1<<20)
	m := pages(t, 1<<20)
	must(t, x.Register(uintptr(gpu.HostAddr(m)), 1<<20, 0))
	if got := status(t, "VmLck") - before; got != 2048 {
		t.Errorf("%d kB are locked, want 2048", got)
	}
	free(t, x, h)
	must(t, x.Unregister(uintptr(gpu.HostAddr(m))))
	if got := status(t, "VmLck") - before; got != 0 {
		t.Errorf("%d kB are still locked", got)
	}
	unmap(t, m)
}

// TestUnregisterLeavesTheNeighboursLocked registers two halves of a page.
func TestUnregisterLeavesTheNeighboursLocked(t *testing.T) {
	needLocked(t, 8<<10)
	_, x := device(t, softgpu.Config{})
	m := pages(t, 8192)
	at := uintptr(gpu.HostAddr(m))
	before := status(t, "VmLck")
	must(t, x.Register(at, 2048, 0))
	must(t, x.Register(at+2048, 2048+4096, 0))
	must(t, x.Unregister(at+2048))
	if got := status(t, "VmLck") - before; got != 4 {
		t.Errorf("%d kB are locked after one of two was unregistered, want the 4 of the shared page", got)
	}
	must(t, x.Unregister(at))
	if got := status(t, "VmLck") - before; got != 0 {
		t.Errorf("%d kB are still locked", got)
	}
	unmap(t, m)
}

func TestPinnedMemoryWorksUnlocked(t *testing.T) {
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 0, Max: old.Max}))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)) }()
	_, x := device(t, softgpu.Config{})
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its capabilities
		if err := dropLockCapability(); err != nil {
			done <- err
			return
		}
		a, err := x.Alloc(gpu.KindHost, 1<<20, 0)
		if err == nil {
			gpu.HostBytes(a, 1)[0] = 1 // works all the same
			err = x.Fill(a, 1, 1, 1<<20)
		}
		done <- err
	}()
	must(t, <-done)
}

// dropLockCapability lets RLIMIT_MEMLOCK count for this thread even for root.
func dropLockCapability() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	data[0].Permitted &^= 1 << unix.CAP_IPC_LOCK
	return unix.Capset(&hdr, &data[0])
}

// TestRegisterRefusesWhatLinuxWouldNotPin is the table of an H200's driver for
// file mappings, as far as this machine has such file systems.
func TestRegisterRefusesWhatLinuxWouldNotPin(t *testing.T) {
	_, x := device(t, softgpu.Config{})
	const n = 65536
	for _, dir := range []string{t.TempDir(), "/dev/shm"} {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			t.Skipf("needs %s: %v", dir, err)
		}
		f, err := os.CreateTemp(dir, "register-test")
		must(t, err)
		defer os.Remove(f.Name())
		must(t, f.Truncate(n))
		writable := gpu.ErrInvalidValue
		if st.Type == unix.TMPFS_MAGIC {
			writable = gpu.Success
		}
		const ro, rw = unix.PROT_READ, unix.PROT_READ | unix.PROT_WRITE
		for _, c := range []struct {
			prot, flags int
			register    gpu.Flags
			want        gpu.Code
		}{
			{rw, unix.MAP_SHARED, 0, writable},
			{rw, unix.MAP_SHARED, gpu.RegisterReadOnly, gpu.Success},
			{rw, unix.MAP_PRIVATE, 0, gpu.Success},
			{ro, unix.MAP_SHARED, 0, gpu.ErrInvalidValue},
			{ro, unix.MAP_SHARED, gpu.RegisterReadOnly, gpu.Success},
		} {
			m, err := unix.Mmap(int(f.Fd()), 0, n, c.prot, c.flags)
			must(t, err)
			err = x.Register(uintptr(gpu.HostAddr(m)), n, c.register)
			wantCode(t, fmt.Sprintf("%s (%#x), protection %d, mapping %d, flags %d", dir, st.Type, c.prot, c.flags, c.register), err, c.want)
			if err == nil {
				must(t, x.Unregister(uintptr(gpu.HostAddr(m))))
			}
			unmap(t, m)
		}
		must(t, f.Close())
	}
}

// TestIOMemoryIsNotTheProcessesOwn registers memory as a device's BAR.
func TestIOMemoryIsNotTheProcessesOwn(t *testing.T) {
	_, x := device(t, softgpu.Config{})
	const n = 65536
	own := pages(t, n)
	defer unmap(t, own)
	err := x.Register(uintptr(gpu.HostAddr(own)), n, gpu.RegisterIOMemory)
	wantCode(t, "private memory", err, gpu.ErrInvalidValue)

	fd, err := unix.MemfdCreate("bar", unix.MFD_CLOEXEC) // what BARs of the software machine are made of
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Ftruncate(fd, n))
	bar, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer unmap(t, bar)
	must(t, x.Register(uintptr(gpu.HostAddr(bar)), n, gpu.RegisterIOMemory))
	must(t, x.Unregister(uintptr(gpu.HostAddr(bar))))
}

// TestUnmappedUnderUseIsAnErrorNotACrash unmaps registered memory, which no
// driver can prevent.
func TestUnmappedUnderUseIsAnErrorNotACrash(t *testing.T) {
	_, x := device(t, softgpu.Config{})
	d := alloc(t, x, gpu.KindDevice, 65536)
	m := pages(t, 65536)
	at := gpu.HostAddr(m)
	must(t, x.Register(uintptr(at), 65536, 0))
	unmap(t, m)
	wantCode(t, "copy", x.Copy(d, at, 65536), gpu.ErrInvalidValue)
	wantCode(t, "copy in", x.CopyIn(at, make([]byte, 100)), gpu.ErrInvalidValue)
	wantCode(t, "fill", x.Fill(at, 1, 1, 100), gpu.ErrInvalidValue)
	s := stream(t, x)
	must(t, s.Copy(d, at, 65536))
	wantCode(t, "stream", s.Synchronize(), gpu.ErrIllegalAddress)
}
