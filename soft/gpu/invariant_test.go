package gpu_test

import (
	"encoding/binary"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// heapWord is plain Go memory that is certain not to be on a stack, which moves.
var heapWord = make([]byte, 4)

func pageable(t *testing.T) *softgpu.Device {
	_, x := device(t, softgpu.Config{Models: []softgpu.Model{small(softgpu.Pageable())}})
	return x
}

// A CPU write before a launch is seen by the GPU, and a GPU write by the CPU
// after a synchronise, on plain Go memory.
func TestPageableMemoryIsCoherentAroundLaunches(t *testing.T) {
	x := pageable(t)
	s, f := stream(t, x), kernel(t, x, "culvert_counter")
	word := heapWord
	for i := range uint32(100) {
		binary.LittleEndian.PutUint32(word, i*7)
		must(t, s.Launch(f, gpu.Dim{X: 4}, gpu.Dim{X: 25}, gpu.HostAddr(word)))
		must(t, s.Synchronize())
		if got := binary.LittleEndian.Uint32(word); got != i*7+100 {
			t.Fatalf("the CPU sees %d, want %d", got, i*7+100)
		}
	}
}

// Memory that is unmapped while the GPU may use it is a fault of the GPU.
func TestUnmappedPageableMemoryIsAGPUFault(t *testing.T) {
	if raceEnabled {
		t.Skip("needs a build without the race detector: nothing recovers from a fault inside its atomics")
	}
	for name, damage := range map[string]func([]byte) error{
		"unmapped":    unix.Munmap,
		"no access":   func(b []byte) error { return unix.Mprotect(b, unix.PROT_NONE) },
		"not written": func(b []byte) error { return unix.Mprotect(b, unix.PROT_READ) },
	} {
		x := pageable(t)
		m := pages(t, 4096)
		a := gpu.HostAddr(m)
		s := stream(t, x)
		h := holdStream(t, s)
		must(t, s.Launch(kernel(t, x, "culvert_counter"), one, one, a))
		must(t, damage(m))
		h.open()
		wantCode(t, name, s.Synchronize(), gpu.ErrIllegalAddress)
		wantCode(t, name+", next call", x.Synchronize(), gpu.ErrIllegalAddress)
	}
}

// Even with pageable access a device address that holds nothing is a fault.
func TestPageableAccessDoesNotReachFreedDeviceMemory(t *testing.T) {
	x := pageable(t)
	a := alloc(t, x, gpu.KindDevice, 2<<20)
	free(t, x, a)
	s := stream(t, x)
	must(t, s.Launch(kernel(t, x, "culvert_counter"), one, one, a))
	wantCode(t, "launch", s.Synchronize(), gpu.ErrIllegalAddress)
}

// Without pageable access the kernel loses its context and changes nothing.
func TestWithoutPageableAccessPlainMemoryLosesTheContext(t *testing.T) {
	_, x := device(t, softgpu.Config{})
	word := heapWord
	clear(word)
	s := stream(t, x)
	must(t, s.Launch(kernel(t, x, "culvert_counter"), one, one, gpu.HostAddr(word)))
	wantCode(t, "launch", s.Synchronize(), gpu.ErrIllegalAddress)
	if binary.LittleEndian.Uint32(word) != 0 {
		t.Error("the kernel wrote memory that it cannot reach")
	}
	wantCode(t, "next call", x.Synchronize(), gpu.ErrIllegalAddress)
}

// Counting from many streams at once loses nothing.
func TestAtomicKernelsAreAtomicAcrossStreams(t *testing.T) {
	for _, backing := range []softgpu.Backing{softgpu.Mapped, softgpu.Heap} {
		_, x := device(t, softgpu.Config{Models: tiny(8 << 20), Backing: backing})
		a := alloc(t, x, gpu.KindDevice, 4)
		must(t, x.Fill(a, 0, 4, 1))
		f := kernel(t, x, "culvert_counter")
		var wg sync.WaitGroup
		for range 8 {
			s := stream(t, x)
			wg.Go(func() {
				for range 100 {
					if err := s.Launch(f, gpu.Dim{X: 10}, gpu.Dim{X: 10}, a); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		must(t, x.Synchronize())
		if got := binary.LittleEndian.Uint32(read(t, x, a, 4)); got != 80_000 {
			t.Errorf("counted %d, want 80000", got)
		}
	}
}

// When a synchronous copy returns, a third device finds the bytes in memory.
func TestSynchronousCopyIsInMemoryWhenItReturns(t *testing.T) {
	_, x := device(t, softgpu.Config{Scatter: true})
	a := alloc(t, x, gpu.KindDevice, 1<<20)
	for _, sync := range []bool{false, true} {
		must(t, x.SetSyncMemops(a, sync))
		for i := range 50 {
			must(t, x.CopyIn(a+gpu.Addr(i*1000), text(1000)))
			l, err := x.GPU().Acquire(a+gpu.Addr(i*1000), 1000)
			must(t, err)
			if string(join(l.Segs())) != string(text(1000)) {
				t.Fatal("a third device sees old bytes")
			}
			l.Release()
		}
	}
}

// A third device's store to a flag in GPU memory releases a stream, and what
// it stored before is there.
func TestDataThatArrivedBeforeAFlagIsSeenAfterTheWait(t *testing.T) {
	_, x := device(t, softgpu.Config{Models: tiny(8 << 20)})
	a, out := alloc(t, x, gpu.KindDevice, 1<<20), alloc(t, x, gpu.KindHost, 4096)
	must(t, x.Fill(a, 0, 1, 1<<20))
	s := stream(t, x)
	must(t, s.Wait(a, 1, 4, gpu.CondGEQ))
	must(t, s.Copy(out, a+4096, 4096))
	data, err := x.GPU().Acquire(a+4096, 4096)
	must(t, err)
	copy(data.Segs()[0], text(4096))
	data.Release()
	other := stream(t, x)
	must(t, other.Write(a, 1, 4))
	must(t, s.Synchronize())
	must(t, x.FlushWrites(gpu.ScopeOwner))
	if string(gpu.HostBytes(out, 4096)) != string(text(4096)) {
		t.Error("the stream saw the flag but not the data before it")
	}
}
