package ladder

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// What is put before a read, and where, is another in each read and in each process, so that
// nothing that has seen one of them can guess the next.
func TestSentinelsCannotBeGuessed(t *testing.T) {
	device, _ := softDevice(t)
	seen := map[[2]uint64]bool{}
	const reads = 8
	for range 2 { // as two processes
		v := newProver(device, tree{}, nil, nil)
		v.stacks = new(knownStacks)
		f := FileSource(adopt(t, "data", make([]byte, 1<<20)))
		a, err := device.Alloc(gpu.KindDevice, 1<<20, 0)
		check(t, err)
		op := Op{Src: f, Mem: gpu.Span{Base: a, Len: 1 << 20}, Kind: gpu.KindDevice}
		v.trial = 0
		v.fileOf(&op).reads[route.NVFS].Store(true)
		for range reads {
			s := v.begin(newHost(device), &Traits{ID: route.NVFS}, []Op{op})
			seen[[2]uint64{s.sentinel, 0}] = true
			seen[[2]uint64{s.reads[0].steps.seed, 1}] = true
			s.waitCold()
			v.end(s)
		}
	}
	if len(seen) != 2*2*reads {
		t.Errorf("%d different words and seeds of places in %d reads, want %d", len(seen), 2*reads, 2*2*reads)
	}
}

// A write to a file that was opened only for writing is compared by a descriptor of our own.
// Without one it is only reported.
func TestWriteOnlyFile(t *testing.T) {
	data := noisy(64<<10, 1)
	s := newStacked(t, "", data)
	for what, want := range map[string]route.Arrival{"opened again": route.ArrivalProved, "not readable": route.ArrivalReported} {
		f, err := os.OpenFile(s.path, os.O_WRONLY, 0)
		s.check(err)
		file, err := storage.Adopt(int(f.Fd()))
		s.check(errors.Join(err, f.Close()))
		w := s.plan.prover.file(file).host.(*fileWitness)
		if what == "not readable" {
			w.back = func() int { return -1 }
			if !errors.Is(w.readTogether(nil, nil), errNoReadBack) {
				t.Error("blocks were read")
			}
		}
		ops := []Op{{Dir: route.Write, Src: FileSource(file), Mem: s.mem, Kind: gpu.KindDevice, Buf: always{}}}
		res := make([]route.Receipt, 1)
		s.check(s.ladder.Plan(FileSource(file)).Run(t.Context(), ops, res))
		if res[0].Route != route.NVFS || res[0].Arrival != want {
			t.Errorf("%s: %v, want %v", what, &res[0], want)
		}
		s.check(file.Close())
	}
}

// A file that is mounted by itself is not on the file system of the directory that its name
// has: a proof there would be one of another stack.
func TestProofIsOnTheSameFileSystem(t *testing.T) {
	const other = "/dev/shm"
	fd, err := unix.Open(other, unix.O_TMPFILE|unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Skipf("needs files without a name and O_DIRECT in %s: %v", other, err)
	}
	check(t, unix.Close(fd))
	s := newStacked(t, "", noisy(64<<10, 1))
	data := noisy(64<<10, 2)
	s.check(s.gpu.CopyIn(s.mem.Base, data))
	looked := &lookedAt{Route: s.plan.routes[0]}
	s.plan.routes[0] = looked
	s.file.Name = other + "/f"
	if own, err := besideOf(&Op{Src: FileSource(s.file)}); err == nil || !strings.Contains(err.Error(), "another file system") {
		if own != nil {
			own.Close()
		}
		t.Errorf("a file for a proof in %s: %v", other, err)
	}
	r, err := s.run(s.plan, route.Write)
	if err != nil || r.Arrival != route.ArrivalProved || looked.n > 0 {
		t.Errorf("%v, %v, %d other files", &r, err, looked.n)
	}
	if now, err := os.ReadFile(s.path); err != nil || !bytes.Equal(now, data) {
		t.Errorf("the file has other bytes, %v", err)
	}
}

// No descriptor for the module is no error of a request that another route may take.
func TestNoDescriptors(t *testing.T) {
	s := newStacked(t, "", noisy(64<<10, 1))
	r := s.plan.routes[0].(*nvfsRoute)
	op := Op{Src: FileSource(s.file), Mem: s.mem, Kind: gpu.KindDevice}
	for _, err := range []error{unix.EMFILE, unix.ENFILE} {
		if got := r.explain(&op, &route.Receipt{}, err); !isRejected(got) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// A read behind the end of a file moves nothing, and there is nothing to prove.
func TestReadBehindTheEnd(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		for _, off := range []uint64{liarFile, liarFile + 4096} {
			if r, err := l.run(route.Read, off, 0, 64<<10); err != nil || r.Bytes != 0 || r.Arrival != route.NotDirect {
				t.Errorf("at %d: %v, %v", off, &r, err)
			}
		}
	})
}

// What is known about a stack holds for all its files until the stack is another one.
func TestAnotherStackIsNotKnown(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		root := peerTree(l.file).MapFS
		drive := "sys/devices/pci0000:00/any/"
		root[drive+"device/vendor"] = &fstest.MapFile{}
		root[drive+"diskseq"] = &fstest.MapFile{Data: []byte("1\n")}
		l.v.os = tree{root}
		lie := func() *route.Decline {
			op := Op{Src: FileSource(adoptFD(t, l.file.FD()))}
			return l.v.learned(l.id, &op)
		}
		op := Op{Src: FileSource(adoptFD(t, l.file.FD()))}
		d := l.v.condemn(l.id, &op, "test")
		if lie() != d {
			t.Error("another file of the stack is believed")
		}
		root[drive+"diskseq"] = &fstest.MapFile{Data: []byte("2\n")}
		if lie() != nil {
			t.Error("another drive is not believed")
		}
	})
}
