package nvfs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// A play is one sequence: threads of a program that map, read, read at the same
// time, unmap and close, while the owner frees the GPU memory.
type play struct {
	*fixture
	f      *nvfs.File
	fd     int
	st     unix.Stat_t
	data   []byte
	meta   []byte
	shadow uint64
	va     uint64 // that is mapped
	owned  uint64 // that is to be freed in the end: va, or what has taken its place
	size   uint64 // of a read
	room   uint64 // of an allocation
	bad    string
	fences []uint64 // of transfers that were accepted
}

const playSize = 3 * page

// send issues a request and returns the true result.
func (p *play) send(req uintptr, encode func([]byte)) (int64, error) {
	var a abi.Arg
	encode(a[:])
	err := p.f.Ioctl(req, unsafe.Pointer(&a))
	if err != nil && (!errors.Is(err, syscall.EPERM) || a.Return() >= 0) {
		p.bad = fmt.Sprintf("request %#x: %v, result %d", req, err, a.Return())
	}
	if err != nil {
		return 0, syscall.Errno(-a.Return())
	}
	return a.Return(), nil
}

// expect wants no error but those.
func (p *play) expect(what string, err error, allowed ...syscall.Errno) {
	if err != nil && !slices.ContainsFunc(allowed, func(no syscall.Errno) bool { return errors.Is(err, no) }) {
		p.bad = what + ": " + err.Error()
	}
}

func (p *play) tie() {
	a := abi.MapArgs{Size: playSize, CPUVAddr: p.shadow, GPUVAddr: p.va, EndFenceAddr: address(p.meta), SbufBlock: 16}
	_, err := p.send(abi.NVFS_IOCTL_MAP, a.Encode)
	p.expect("MAP", err, syscall.EINVAL)
}

// read reads p.size bytes of the file, as a rule in three windows, or in one when
// asynchronous.
func (p *play) read(fence uint64) {
	a := abi.IOArgs{
		CPUVAddr: p.shadow, Size: p.size, Inum: p.st.Ino, Majdev: unix.Major(p.st.Dev), Mindev: unix.Minor(p.st.Dev),
		FD: int32(p.fd), Bits: abi.BitSync, EndFenceValue: fence,
	}
	if fence != 0 {
		a.Bits = 0
	}
	n, err := p.send(abi.NVFS_IOCTL_READ, a.Encode)
	p.expect("READ", err, syscall.EINVAL, syscall.EBUSY, syscall.EIO)
	if err == nil && fence != 0 {
		p.fences = append(p.fences, fence)
	}
	if err == nil && fence == 0 && uint64(n) != p.size {
		p.bad = fmt.Sprintf("READ of %d bytes moved %d", p.size, n)
	}
}

// replace frees the memory and takes the frames for something else.
func (p *play) replace() {
	p.check(p.GPU.Free(gpu.Addr(p.va)))
	other, err := p.GPU.Alloc(gpu.KindDevice, p.room, 0)
	p.check(err)
	p.check(p.GPU.Fill(other, 0xee, 1, p.room))
	p.owned = uint64(other)
}

func (p *play) run(seed uint64) (trace []string) {
	rng := rand.New(rand.NewPCG(seed, 9))
	va, err := p.GPU.Alloc(gpu.KindDevice, p.room, 0)
	p.check(err)
	p.va, p.owned, p.bad, p.fences = uint64(va), uint64(va), "", nil
	clear(p.meta)
	p.f = p.m.OpenFile()
	v, err := p.f.Mmap(0, page, rw)
	p.check(err)
	p.shadow = uint64(v.Addr())
	freed, unmapped := rng.IntN(2) == 0, rng.IntN(2) == 0
	actors := []func(){p.tie}
	if rng.IntN(2) == 0 {
		actors[0] = func() { p.tie(); p.read(0) }
	}
	if rng.IntN(2) == 0 {
		actors = append(actors, func() { p.read(0) })
	}
	if rng.IntN(2) == 0 {
		actors = append(actors, func() { p.read(0x77) })
	}
	if rng.IntN(4) == 0 {
		actors = append(actors, p.tie)
	}
	if freed {
		actors = append(actors, p.replace)
	}
	if unmapped {
		actors = append(actors, func() { p.expect("munmap", v.Unmap()) })
	}
	for i, act := range actors[1:] {
		wait := rng.IntN(16)
		actors[i+1] = func() {
			for range wait { // let the others get somewhere
				p.Points.At("wait", uint64(i))
			}
			act()
		}
	}
	trace, err = p.Points.Run(seed, synctest.Wait, actors...)
	if err != nil {
		p.t.Fatalf("seed %d: %v", seed, err)
	}
	p.expect("munmap", v.Unmap())
	p.f.Release()
	p.m.Idle()
	p.finish(seed, freed, trace)
	return trace
}

// finish ends a sequence.
func (p *play) finish(seed uint64, freed bool, trace []string) {
	if bad := p.verdict(freed); bad != "" {
		p.t.Fatalf("seed %d: %s\nafter %q", seed, bad, trace)
	}
}

// verdict holds what is left against the invariants and says what is wrong.
func (p *play) verdict(freed bool) string {
	for _, want := range p.fences {
		if got := binary.LittleEndian.Uint64(p.meta[abi.MetaFence:]); got != want {
			p.bad = fmt.Sprintf("the fence is %#x, want %#x: an accepted transfer did not complete", got, want)
		}
	}
	if freed && !bytes.Equal(p.Read(p.owned, int(p.room)), bytes.Repeat([]byte{0xee}, int(p.room))) {
		p.bad = "a device wrote to memory that was freed"
	}
	if n, live, u := p.m.Groups(), p.RM.Live(), p.Fabric().Usage(); n != 0 || live != 0 || u.Accesses != 0 || u.Mappings != 0 {
		p.bad += fmt.Sprintf(" left over: %d mgroups, %d pins, %+v", n, live, u)
	}
	if err := p.m.Balance(); err != nil {
		p.bad += " " + err.Error()
	}
	p.check(p.GPU.Free(gpu.Addr(p.owned)))
	return p.bad
}

// TestInterleavings lets MAP, transfers, a second transfer, a second MAP, the
// owner's free and munmap meet in any order. Invariants A: the mgroup is freed
// exactly once, munmap never waits, the free callback waits for transfers, no
// device touches memory that was freed, and every accepted transfer ends.
func TestInterleavings(t *testing.T) {
	n := uint64(1000)
	if testing.Short() {
		n /= 10
	}
	for _, callback := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := &play{fixture: newFixture(t, true, nvfs.Config{Callback: callback}), data: pattern(7, playSize), size: playSize, room: 2 << 20}
			p.meta = p.memory(abi.MetaSize)
			var err error
			p.fd, err = unix.Open(p.file("a", playSize, map[int64][]byte{0: p.data}), unix.O_RDWR|unix.O_DIRECT, 0)
			p.check(err)
			p.check(unix.Fstat(p.fd, &p.st))
			passed := map[string]uint64{}
			for seed := range n {
				for _, at := range p.run(seed) {
					name, _, _ := strings.Cut(at, "/")
					passed[name]++
				}
			}
			points := []string{"nvfs.map.pinned", "nvfs.chunk", "nvfs.io.end", "nvfs.async", "nvfs.munmap", "nvfs.free"}
			if callback {
				points = append(points, "nvfs.callback", "nvfs.callback.end")
			}
			for _, at := range points {
				if passed[at] < n/50 {
					t.Errorf("%s was passed %d times in %d sequences", at, passed[at], n)
				}
			}
			p.check(unix.Close(p.fd))
			p.close()
		})
	}
}
