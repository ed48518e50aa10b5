package gputest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

var registerCases = []testCase{
	{"register", register},
	{"register-flags", registerFlags},
	{"register-wrong", registerWrong},
	{"register-overlap", registerOverlap},
	{"register-protection", registerProtection},
	{"register-ext4", registerExt4},
	{"register-tmpfs", registerTmpfs},
	{"register-memfd", registerMemfd},
	{"unregister-wrong", unregisterWrong},
}

func register(b *bench) {
	const n = 1 << 20
	m := pages(b, n, rw)
	want := bytes.Clone(m)
	b.ok("register", b.dev.Register(host(m), n, gpu.RegisterPortable|gpu.RegisterDeviceMap))
	p := got(b.dev.Pointer(addr(m)+5000)).ok(b, "pointer")
	b.equal("pointer.kind", p.Kind, gpu.KindRegistered)
	b.equal("pointer.base", p.Base == addr(m), true)
	b.equal("pointer.size", p.Size, uint64(n))
	b.equal("pointer.host", p.Host == host(m)+5000, true)
	b.equal("content", bytes.Equal(m, want), true)
	d := b.alloc(gpu.KindDevice, n)
	s := b.stream()
	b.ok("to-device", s.Copy(d, addr(m), n))
	b.must(s.Synchronize())
	b.contains("to-device.read", d, want)
	b.must(b.dev.Fill(d, 3, 1, n))
	b.ok("from-device", s.Copy(addr(m)+1, d, n-1))
	b.must(s.Synchronize())
	b.equal("from-device.read", m[0] == want[0] && m[1] == 3 && m[n-1] == 3, true)
	b.ok("unregister", b.dev.Unregister(host(m)))
	p = got(b.dev.Pointer(addr(m))).ok(b, "after")
	b.equal("after.kind", p.Kind, gpu.KindNone)
	b.ok("again", b.dev.Register(host(m), n, 0))
	b.must(b.dev.Unregister(host(m)))
}

func registerFlags(b *bench) {
	m := pages(b, 65536, rw)
	for _, f := range []gpu.Flags{0, gpu.RegisterPortable, gpu.RegisterDeviceMap, gpu.RegisterReadOnly, gpu.RegisterIOMemory, 16, 1 << 31} {
		step := fmt.Sprintf("%#x", uint32(f))
		if b.note(step, b.dev.Register(host(m), 65536, f)) == gpu.Success {
			b.must(b.dev.Unregister(host(m)))
		}
	}
}

func registerWrong(b *bench) {
	m := pages(b, 65536, rw)
	try := func(step string, at uintptr, n uint64) {
		if b.note(step, b.dev.Register(at, n, 0)) == gpu.Success {
			b.must(b.dev.Unregister(at))
		}
	}
	try("size-0", host(m), 0)
	try("zero-address", 0, 4096)
	try("unaligned", host(m)+100, 5000)
	try("one-byte", host(m)+1, 1)
	try("overflow", host(m), 1<<63)
	try("wraps", host(m), -uint64(host(m)))
	try("pinned", uintptr(b.alloc(gpu.KindHost, 8192)), 4096)
	try("managed", uintptr(b.alloc(gpu.KindManaged, 8192)), 4096)
	try("device", uintptr(b.alloc(gpu.KindDevice, 8192)), 4096)
	gone := got(unix.Mmap(-1, 0, 8192, rw, unix.MAP_PRIVATE|unix.MAP_ANON)).must(b)
	at := host(gone)
	b.must(unix.Munmap(gone))
	try("unmapped", at, 8192)
}

func registerOverlap(b *bench) {
	const n = 65536
	m := pages(b, 2*n, rw)
	b.must(b.dev.Register(host(m)+4096, n, 0))
	for _, c := range []struct {
		name string
		off  uintptr
		n    uint64
	}{
		{"same", 4096, n},
		{"inside", 8192, 4096},
		{"around", 0, 2 * n},
		{"front", 0, 8192},
		{"back", n, 8192},
		{"one-byte", 4096, 1},
	} {
		b.want(c.name, b.dev.Register(host(m)+c.off, c.n, 0), gpu.ErrHostMemoryAlreadyRegistered)
	}
	b.ok("beside", b.dev.Register(host(m)+n+4096, 4096, 0))
	b.ok("beside.unregister", b.dev.Unregister(host(m)+n+4096))
	b.want("other-context", b.other().Register(host(m)+4096, n, 0), gpu.ErrHostMemoryAlreadyRegistered)
	b.must(b.dev.Unregister(host(m) + 4096))

	b.must(b.dev.Register(host(m), 100, 0))
	if b.note("same-page", b.dev.Register(host(m)+200, 100, 0)) == gpu.Success {
		b.must(b.dev.Unregister(host(m) + 200))
	}
	b.must(b.dev.Unregister(host(m)))
}

func registerProtection(b *bench) {
	ro, none := pages(b, 65536, unix.PROT_READ), pages(b, 65536, unix.PROT_NONE)
	b.registers("read-only", ro, 0)
	b.registers("read-only.flag", ro, gpu.RegisterReadOnly)
	b.registers("none", none, 0)
	b.registers("none.flag", none, gpu.RegisterReadOnly)
	rest := pages(b, 65536, rw)
	b.must(unix.Mprotect(rest[32768:], unix.PROT_NONE))
	b.registers("half", rest, 0)
}

// registers notes whether memory can be registered, and whether the GPU then
// reads its contents.
func (b *bench) registers(step string, m []byte, f gpu.Flags) {
	b.Helper()
	if b.note(step, b.dev.Register(host(m), uint64(len(m)), f)) != gpu.Success {
		return
	}
	d := b.alloc(gpu.KindDevice, uint64(len(m)))
	if b.note(step+".copy", b.dev.Copy(d, addr(m), uint64(len(m)))) == gpu.Success {
		b.contains(step+".read", d, m)
	}
	b.must(b.dev.Unregister(host(m)))
}

// registerExt4 and registerTmpfs map files on the two kinds of file system
// that matter: one that writes dirty pages back, and one that does not.
func registerExt4(b *bench) {
	const ext = 0xef53
	b.registerFile(b.TempDir(), ext, "a temporary directory on ext4")
}

func registerTmpfs(b *bench) {
	dir, err := os.MkdirTemp("/dev/shm", "gputest")
	if err == nil {
		b.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	b.registerFile(dir, unix.TMPFS_MAGIC, "tmpfs at /dev/shm")
}

func (b *bench) registerFile(dir string, fs int64, what string) {
	b.Helper()
	const n = 65536
	var st unix.Statfs_t
	b.needs(unix.Statfs(dir, &st) == nil && int64(st.Type) == fs, what)
	f := got(os.Create(filepath.Join(dir, "data"))).must(b)
	defer f.Close()
	_ = got(f.Write(pattern(21, n))).must(b)
	fd := int(f.Fd())
	b.registers("shared", mapping(b, fd, n, rw, unix.MAP_SHARED), 0)
	b.registers("shared.flag", mapping(b, fd, n, rw, unix.MAP_SHARED), gpu.RegisterReadOnly)
	b.registers("shared-read-only", mapping(b, fd, n, unix.PROT_READ, unix.MAP_SHARED), 0)
	b.registers("shared-read-only.flag", mapping(b, fd, n, unix.PROT_READ, unix.MAP_SHARED), gpu.RegisterReadOnly)
	b.registers("private", mapping(b, fd, n, rw, unix.MAP_PRIVATE), 0)
}

func registerMemfd(b *bench) {
	const n = 65536
	fd := got(unix.MemfdCreate("gputest", unix.MFD_CLOEXEC)).must(b)
	defer unix.Close(fd)
	b.must(unix.Ftruncate(fd, n))
	b.registers("shared", mapping(b, fd, n, rw, unix.MAP_SHARED), 0)
}

func unregisterWrong(b *bench) {
	m := pages(b, 65536, rw)
	b.note("plain", b.dev.Unregister(host(m)))
	b.note("zero", b.dev.Unregister(0))
	b.note("pinned", b.dev.Unregister(uintptr(b.alloc(gpu.KindHost, 4096))))
	b.note("device", b.dev.Unregister(uintptr(b.alloc(gpu.KindDevice, 4096))))
	b.must(b.dev.Register(host(m), 65536, 0))
	if b.note("inside", b.dev.Unregister(host(m)+4096)) != gpu.Success {
		b.ok("start", b.dev.Unregister(host(m)))
	}
	b.note("twice", b.dev.Unregister(host(m)))
}
