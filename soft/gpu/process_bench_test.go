package gpu_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// The benchmarks below are why the software machine has no server process: docs/run.md.

func init() {
	// echo is a server that does nothing: it answers each request on file 3.
	jobs["echo"] = func(_ *softgpu.Driver, _ *softgpu.Device, _ *bufio.Reader) error {
		buf := make([]byte, 64)
		for {
			n, err := unix.Read(3, buf)
			if n <= 0 {
				return err
			}
			if _, err := unix.Write(3, buf[:n]); err != nil {
				return err
			}
		}
	}
}

// BenchmarkServerCall is the least that a call to a server process costs: 64 bytes over a
// Unix socket and back.
func BenchmarkServerCall(b *testing.B) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(b, err)
	exe, err := os.Executable()
	must(b, err)
	far := os.NewFile(uintptr(pair[1]), "socket")
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), jobVariable+"=echo", "SOFTGPU_SHARED="+filepath.Join(b.TempDir(), "shared"))
	cmd.ExtraFiles = []*os.File{far}
	must(b, cmd.Start())
	must(b, far.Close())
	buf := make([]byte, 64)
	for b.Loop() {
		_, err := unix.Write(pair[0], buf)
		must(b, err)
		_, err = unix.Read(pair[0], buf)
		must(b, err)
	}
	must(b, unix.Close(pair[0]))
	must(b, cmd.Wait())
}

// BenchmarkCall is calls of the software GPU, of a process and of processes that share it.
func BenchmarkCall(b *testing.B) {
	for name, path := range map[string]string{"own": "", "shared": filepath.Join(b.TempDir(), "shared")} {
		d, err := softgpu.New(softgpu.Config{Zero: true, Shared: path})
		must(b, err)
		dev, err := d.Open(0)
		must(b, err)
		a, h := alloc(b, dev, gpu.KindDevice, 1<<20), alloc(b, dev, gpu.KindHost, 1<<20)
		alloc(b, dev, gpu.KindDevice, 4096) // keeps the block of the small ones
		s := stream(b, dev)
		b.Run(name+"/alloc-and-free-4KiB", func(b *testing.B) {
			for b.Loop() {
				free(b, dev, alloc(b, dev, gpu.KindDevice, 4096))
			}
		})
		b.Run(name+"/create-and-free-2MiB", func(b *testing.B) {
			for b.Loop() {
				free(b, dev, alloc(b, dev, gpu.KindVirtual, 2<<20))
			}
		})
		b.Run(name+"/enqueue-copy-4KiB", func(b *testing.B) {
			for b.Loop() {
				must(b, s.Copy(a, h, 4096))
			}
			must(b, s.Synchronize())
		})
		b.Run(name+"/info", func(b *testing.B) {
			for b.Loop() {
				freeMemory(b, dev)
			}
		})
		must(b, s.Close())
		must(b, dev.Close())
		must(b, d.Close())
	}
}

// BenchmarkOpen is how long a process waits for its GPUs.
func BenchmarkOpen(b *testing.B) {
	for name, path := range map[string]string{"own": "", "shared": filepath.Join(b.TempDir(), "shared")} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				d, err := softgpu.New(softgpu.Config{Shared: path})
				must(b, err)
				must(b, d.Close())
			}
		})
	}
}
