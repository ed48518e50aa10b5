package gpu_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/abi/nvrm"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

const (
	jobVariable   = "SOFTGPU_JOB"
	sharedGPUSize = 64 << 20
)

// sharedConfig is two small GPUs whose memory processes share by a file.
func sharedConfig(path string) softgpu.Config {
	return softgpu.Config{Models: append(tiny(sharedGPUSize), tiny(sharedGPUSize)...), Scatter: true, Zero: true, Shared: path}
}

// jobs are what a second process does with GPU 0. It reads lines, and answers with lines.
var jobs = map[string]func(d *softgpu.Driver, x *softgpu.Device, in *bufio.Reader) error{
	// allocate takes 32 MiB and waits.
	"allocate": func(_ *softgpu.Driver, x *softgpu.Device, in *bufio.Reader) error {
		if _, err := x.Alloc(gpu.KindDevice, 32<<20, 0); err != nil {
			return err
		}
		fmt.Println("allocated")
		_, err := in.ReadString('\n')
		return err
	},
	// export fills an allocation of each kind and prints an IPC handle.
	"export": func(_ *softgpu.Driver, x *softgpu.Device, in *bufio.Reader) error {
		for _, n := range []uint64{4096, 4 << 20} {
			a, err := x.Alloc(gpu.KindDevice, n, 0)
			if err != nil {
				return err
			}
			if err := x.Fill(a, 0x11111111, 4, n/4); err != nil {
				return err
			}
			h, err := x.IPCHandle(a)
			if err != nil {
				return err
			}
			fmt.Println(hex.EncodeToString(h[:]))
			if _, err := in.ReadString('\n'); err != nil {
				return err
			}
			b := make([]byte, 4)
			if err := x.CopyOut(b, a+gpu.Addr(n-4)); err != nil {
				return err
			}
			fmt.Printf("%x\n", b)
			if _, err := in.ReadString('\n'); err != nil {
				return err
			}
			if err := x.Free(a); err != nil {
				return err
			}
			fmt.Println("freed")
			if _, err := in.ReadString('\n'); err != nil {
				return err
			}
		}
		return nil
	},
	// send exports virtual memory and passes its descriptor over a socket, file 3.
	"send": func(_ *softgpu.Driver, x *softgpu.Device, in *bufio.Reader) error {
		a, err := x.Alloc(gpu.KindVirtual, 4<<20, 0)
		if err != nil {
			return err
		}
		if err := x.Fill(a, 0x22222222, 4, 1<<20); err != nil {
			return err
		}
		f, err := x.Export(a, 4<<20, gpu.ExportPosixFD)
		if err != nil {
			return err
		}
		conn, err := net.FileConn(os.NewFile(3, "socket"))
		if err != nil {
			return err
		}
		if _, _, err := conn.(*net.UnixConn).WriteMsgUnix([]byte("x"), unix.UnixRights(int(f.Fd())), nil); err != nil {
			return err
		}
		_, err = in.ReadString('\n')
		return err
	},
}

func runJob(name string) int {
	d, err := softgpu.New(sharedConfig(os.Getenv("SOFTGPU_SHARED")))
	if err == nil {
		var x gpu.Device
		if x, err = d.Open(0); err == nil {
			err = jobs[name](d, x.(*softgpu.Device), bufio.NewReader(os.Stdin))
		}
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// A second is this test in a second process.
type second struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startSecond(t *testing.T, job, path string, files ...*os.File) *second {
	t.Helper()
	if raceEnabled {
		t.Skip("the race detector needs memory on the heap, which is not shared")
	}
	exe, err := os.Executable()
	must(t, err)
	s := &second{Cmd: exec.Command(exe)}
	s.Env = append(os.Environ(), jobVariable+"="+job, "SOFTGPU_SHARED="+path)
	s.Stderr, s.ExtraFiles = os.Stderr, files
	s.in, err = s.StdinPipe()
	must(t, err)
	out, err := s.StdoutPipe()
	must(t, err)
	s.out = bufio.NewReader(out)
	must(t, s.Start())
	t.Cleanup(s.kill)
	return s
}

func (s *second) kill() {
	_ = s.Process.Kill()
	_ = s.Wait()
}

func (s *second) line(t *testing.T) string {
	t.Helper()
	text, err := s.out.ReadString('\n')
	must(t, err)
	return strings.TrimSuffix(text, "\n")
}

func (s *second) goOn(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(s.in, "\n")
	must(t, err)
}

func (s *second) handle(t *testing.T) (h [64]byte) {
	t.Helper()
	text := s.line(t)
	if n, err := hex.Decode(h[:], []byte(text)); err != nil || n != 64 {
		t.Fatalf("not a handle: %q", text)
	}
	return h
}

func sharedPath(t *testing.T) string { return filepath.Join(t.TempDir(), "shared") }

// Two processes see the same bytes by an IPC handle, in both directions, and the memory
// stays for the second when the first has freed it.
func TestIPCBetweenProcesses(t *testing.T) {
	path := sharedPath(t)
	_, x := device(t, sharedConfig(path))
	whole := freeMemory(t, x)
	other := startSecond(t, "export", path)
	for _, n := range []int{4096, 4 << 20} {
		h := other.handle(t)
		used := whole - freeMemory(t, x)
		a, err := x.OpenIPC(h)
		must(t, err)
		if now := whole - freeMemory(t, x); now != used {
			t.Errorf("%d bytes are used, and %d after the open: the memory counts twice", used, now)
		}
		if got := read(t, x, a, n); !bytes.Equal(got, bytes.Repeat([]byte{0x11}, n)) {
			t.Errorf("%d bytes by handle: %x…", n, got[:16])
		}
		p, err := x.Pointer(a + 1)
		if err != nil || p.Base != a || p.Size != uint64(n) || p.Kind != gpu.KindDevice {
			t.Errorf("pointer: %+v, %v", p, err)
		}
		must(t, x.CopyIn(a+gpu.Addr(n-4), []byte{1, 2, 3, 4}))
		again, err := x.OpenIPC(h)
		if err != nil || again != a {
			t.Errorf("opened again: %v, %v, want %v", again, err, a)
		}
		other.goOn(t)
		if got := other.line(t); got != "01020304" {
			t.Errorf("the first process sees %q", got)
		}
		other.goOn(t)
		if got := other.line(t); got != "freed" {
			t.Fatalf("the first process: %s", got)
		}
		if got := read(t, x, a+gpu.Addr(n-4), 4); !bytes.Equal(got, []byte{1, 2, 3, 4}) {
			t.Errorf("after the free: %x", got)
		}
		for i, last := range []bool{false, true} {
			if got, err := x.CloseIPC(a); err != nil || got != last {
				t.Errorf("close %d: %t, %v", i, got, err)
			}
		}
		if _, err := x.CloseIPC(a); gpu.CodeOf(err) != gpu.ErrInvalidValue {
			t.Errorf("one close too many: %v", err)
		}
		if free := freeMemory(t, x); free != whole {
			t.Errorf("%d of %d bytes are free", free, whole)
		}
		_, err = x.OpenIPC(h)
		wantCode(t, "a handle of freed memory", err, gpu.ErrInvalidHandle)
		other.goOn(t)
	}
}

// Wrong handles and addresses get CUDA's codes.
func TestIPCErrors(t *testing.T) {
	path := sharedPath(t)
	_, a := device(t, sharedConfig(path))
	d, b := device(t, sharedConfig(path))
	p := alloc(t, a, gpu.KindDevice, 4<<20)
	h, err := a.IPCHandle(p + 100)
	must(t, err)
	same, err := a.IPCHandle(p)
	if err != nil || same != h {
		t.Errorf("a second handle of the same memory differs: %v", err)
	}
	_, err = a.OpenIPC(h)
	wantCode(t, "in the process that made it", err, gpu.ErrInvalidContext)
	x, err := d.Open(1)
	must(t, err)
	_, err = x.(*softgpu.Device).OpenIPC(h)
	wantCode(t, "on another GPU", err, gpu.ErrMapFailed)

	for name, change := range map[string]func(*nvrm.IPCMemHandle){
		"another identity": func(h *nvrm.IPCMemHandle) { h.Pad0[3] ^= 1 },
		"another unit":     func(h *nvrm.IPCMemHandle) { h.Pad1[0] ^= 1 },
		"another card":     func(h *nvrm.IPCMemHandle) { h.Pad2[0] = 1 },
		"no card":          func(h *nvrm.IPCMemHandle) { h.Pad2[3] = 0xff },
		"another process":  func(h *nvrm.IPCMemHandle) { h.Pad3[0] ^= 8 },
		"no process":       func(h *nvrm.IPCMemHandle) { h.Pad2[7] = 0xff },
		"no size":          func(h *nvrm.IPCMemHandle) { h.Size = 0 },
		"too large":        func(h *nvrm.IPCMemHandle) { h.Size++ },
		"too far":          func(h *nvrm.IPCMemHandle) { h.Offset = 1 << 31 },
		"garbage":          func(h *nvrm.IPCMemHandle) { *h = nvrm.ParseIPC([64]byte(bytes.Repeat([]byte{0xff}, 64))) },
		"nothing":          func(h *nvrm.IPCMemHandle) { *h = nvrm.IPCMemHandle{} },
	} {
		forged := nvrm.ParseIPC(h)
		change(&forged)
		_, err := b.OpenIPC(forged.Bytes())
		wantCode(t, name, err, gpu.ErrInvalidHandle)
	}

	o, err := b.OpenIPC(h)
	must(t, err)
	wantCode(t, "free an opened handle", b.Free(o), gpu.ErrInvalidValue)
	_, err = b.IPCHandle(o)
	wantCode(t, "a handle of opened memory", err, gpu.ErrInvalidValue)
	_, err = b.CloseIPC(o + 1)
	wantCode(t, "close inside", err, gpu.ErrInvalidValue)
	_, err = a.CloseIPC(p)
	wantCode(t, "close own memory", err, gpu.ErrInvalidValue)
	for _, kind := range []gpu.Kind{gpu.KindHost, gpu.KindManaged, gpu.KindVirtual} {
		_, err := a.IPCHandle(alloc(t, a, kind, 4096))
		wantCode(t, fmt.Sprintf("%v memory", kind), err, gpu.ErrInvalidValue)
	}
	_, err = a.IPCHandle(0)
	wantCode(t, "no memory", err, gpu.ErrInvalidValue)

	_, private := device(t, softgpu.Config{Models: tiny(sharedGPUSize)})
	_, err = private.OpenIPC(nvrm.IPCMemHandle{PID: 1, Size: 1}.Bytes())
	wantCode(t, "in a process that shares nothing", err, gpu.ErrInvalidHandle)
	own, err := private.IPCHandle(alloc(t, private, gpu.KindDevice, 4096))
	must(t, err)
	_, err = private.OpenIPC(own)
	wantCode(t, "in the process that made it, which shares nothing", err, gpu.ErrInvalidContext)
}

// One GPU's memory is that of all processes: it runs out for both, and a process that is
// killed gives its part back.
func TestMemoryOfKilledProcess(t *testing.T) {
	path := sharedPath(t)
	_, x := device(t, sharedConfig(path))
	other := startSecond(t, "allocate", path)
	if got := other.line(t); got != "allocated" {
		t.Fatal(got)
	}
	if free := freeMemory(t, x); free != sharedGPUSize-32<<20 {
		t.Errorf("%d bytes are free beside 32 MiB of the other process", free)
	}
	_, err := x.Alloc(gpu.KindDevice, 48<<20, 0)
	wantCode(t, "more than the other process leaves", err, gpu.ErrOutOfMemory)
	other.kill()
	a := alloc(t, x, gpu.KindDevice, 48<<20) // without a look at the free memory before
	if got := read(t, x, a, 48<<20); !bytes.Equal(got, make([]byte, 48<<20)) {
		t.Error("memory of the other process is not zero")
	}
}

// A descriptor that another process exports and sends can be imported, after that
// process has ended, too.
func TestImportBetweenProcesses(t *testing.T) {
	path := sharedPath(t)
	_, x := device(t, sharedConfig(path))
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	far := os.NewFile(uintptr(pair[1]), "socket")
	defer unix.Close(pair[0])
	other := startSecond(t, "send", path, far)
	must(t, far.Close())
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC)
	must(t, err)
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	must(t, err)
	fds, err := unix.ParseUnixRights(&messages[0])
	must(t, err)
	f := os.NewFile(uintptr(fds[0]), "memory")
	defer f.Close()

	used := sharedGPUSize - freeMemory(t, x)
	first, err := x.Import(f, 4<<20)
	must(t, err)
	again, err := x.Import(f, 4<<20) // the descriptor is not used up
	must(t, err)
	if now := sharedGPUSize - freeMemory(t, x); now != used {
		t.Errorf("%d bytes are used, %d after the import", used, now)
	}
	must(t, x.CopyIn(first, []byte("hello")))
	other.kill()
	if got := read(t, x, again, 8); !bytes.Equal(got, []byte("hello\x22\x22\x22")) {
		t.Errorf("the import has %q", got)
	}
	must(t, x.Free(first))
	must(t, x.Free(again))
	if free := freeMemory(t, x); free != sharedGPUSize {
		t.Errorf("%d bytes are free at the end", free)
	}
	_, err = x.Import(f, 4<<20)
	wantCode(t, "memory that is gone", err, gpu.ErrUnknown)

	_, alone := device(t, softgpu.Config{Models: tiny(sharedGPUSize)})
	_, err = alone.Import(f, 4<<20)
	wantCode(t, "in a process that shares nothing", err, gpu.ErrUnknown)
	_, stranger := device(t, sharedConfig(sharedPath(t)))
	_, err = stranger.Import(f, 4<<20)
	wantCode(t, "in a process that shares other memory", err, gpu.ErrUnknown)
}

// Memory that goes to another process and back is used until the last address is freed,
// in whatever order.
func TestImportIsExportedAgain(t *testing.T) {
	path := sharedPath(t)
	_, a := device(t, sharedConfig(path))
	_, b := device(t, sharedConfig(path))
	const n = 2 << 20
	va := alloc(t, a, gpu.KindVirtual, n)
	must(t, a.CopyIn(va, []byte("a")))
	pass := func(from *softgpu.Device, addr gpu.Addr, to *softgpu.Device) gpu.Addr {
		f, err := from.Export(addr, n, gpu.ExportPosixFD)
		must(t, err)
		defer f.Close()
		got, err := to.Import(f, n)
		must(t, err)
		return got
	}
	vb := pass(a, va, b)
	back := pass(b, vb, a)
	free(t, a, va)
	must(t, b.CopyIn(vb+1, []byte("b")))
	if got := read(t, a, back, 2); string(got) != "ab" {
		t.Errorf("%q after both wrote", got)
	}
	free(t, b, vb)
	if got := freeMemory(t, b); got != sharedGPUSize-n {
		t.Errorf("%d bytes are free while the first process uses %d", got, n)
	}
	if got := read(t, a, back, 2); string(got) != "ab" {
		t.Errorf("%q after the other process freed it", got)
	}
	free(t, a, back)
	if got := freeMemory(t, b); got != sharedGPUSize {
		t.Errorf("%d bytes are free", got)
	}
}

// What cannot be shared is refused with the reason.
func TestSharingIsRefused(t *testing.T) {
	path := sharedPath(t)
	if _, err := softgpu.New(softgpu.Config{Backing: softgpu.Heap, Shared: path}); err == nil || !strings.Contains(err.Error(), "Go heap") || !strings.Contains(err.Error(), path) {
		t.Errorf("heap: %v", err)
	}
	open(t, sharedConfig(path))
	for name, change := range map[string]func(*softgpu.Config){
		"memory":  func(c *softgpu.Config) { c.Models = tiny(2 * sharedGPUSize) },
		"GPUs":    func(c *softgpu.Config) { c.Models = c.Models[:1] },
		"zero":    func(c *softgpu.Config) { c.Zero = false },
		"scatter": func(c *softgpu.Config) { c.Scatter = false },
		"seed":    func(c *softgpu.Config) { c.Seed++ },
	} {
		cfg := sharedConfig(path)
		change(&cfg)
		d, err := softgpu.New(cfg)
		if err == nil {
			d.Close()
			t.Errorf("other %s: accepted", name)
		} else if !strings.Contains(err.Error(), "the GPUs of the other processes differ") {
			t.Errorf("other %s: %v", name, err)
		}
	}
}
