package ring

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
)

// An hwFile is a large file whose every page begins with its own offset.
type hwFile struct {
	name             string
	path             string
	buffered, direct int
	size             int64
}

// files makes one file in memory and one on disk, warm.
func (h *bench) files() []*hwFile {
	dir := h.opt.dir
	if dir == "" {
		dir = h.t.TempDir()
	}
	var list []*hwFile
	if h.opt.shm != "" {
		list = append(list, h.file("tmpfs", h.opt.shm))
	}
	return append(list, h.file("disk", dir))
}

func (h *bench) file(name, dir string) *hwFile {
	f := &hwFile{name: name, path: filepath.Join(dir, "culvert-ring-bench"), size: h.opt.size, direct: -1}
	f.buffered = h.create(f.path)
	block := noise(9, 4<<20)
	var wg sync.WaitGroup
	const writers = 8
	for w := range int64(writers) {
		wg.Go(func() {
			b := slices.Clone(block)
			for off := w * int64(len(b)); off < f.size; off += writers * int64(len(b)) {
				for at := 0; at < len(b); at += page {
					binary.LittleEndian.PutUint64(b[at:], uint64(off)+uint64(at))
				}
				if _, err := unix.Pwrite(f.buffered, b[:min(int64(len(b)), f.size-off)], off); err != nil {
					h.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := unix.Fdatasync(f.buffered); err != nil {
		h.t.Fatal(err)
	}
	if fd, err := unix.Open(f.path, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0); err == nil {
		f.direct = fd
		h.t.Cleanup(func() { unix.Close(fd) })
	}
	return f
}

// create makes a file that goes away with the test.
func (h *bench) create(path string) int {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		unix.Close(fd)
		os.Remove(path)
	})
	return fd
}

// verify looks at the pages of the GPU's copy here and there, and spoils them.
func (h *bench) verify(f *hwFile) {
	got := make([]byte, page)
	for range 50 {
		off := rand.Int64N(min(f.size, 1<<30)/page) * page
		if err := h.dev.CopyOut(got, h.mem+gpu.Addr(off)); err != nil {
			h.t.Fatal(err)
		}
		if at := binary.LittleEndian.Uint64(got); at != uint64(off) {
			h.t.Errorf("page at %d holds that of %d", off, at)
			return
		}
	}
	if err := h.dev.Fill(h.mem, 0xff, 1, uint64(f.size)); err != nil {
		h.t.Fatal(err)
	}
}

// ceilings are the GPU's own copies of pinned memory.
func (h *bench) ceilings() {
	n := uint64(min(256<<20, h.opt.size))
	a, err := h.dev.Alloc(gpu.KindHost, n, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	defer h.dev.Free(a)
	clear(gpu.HostBytes(a, n))
	s, err := h.dev.NewStream()
	if err != nil {
		h.t.Fatal(err)
	}
	defer s.Close()
	copies := func(dst, src func(i int) gpu.Addr) func() int64 {
		return func() int64 {
			for i := range 8 {
				if err := s.Copy(dst(i), src(i), n); err != nil {
					h.t.Fatal(err)
				}
			}
			if err := s.Synchronize(); err != nil {
				h.t.Fatal(err)
			}
			return 8 * int64(n)
		}
	}
	host := func(int) gpu.Addr { return a }
	dev := func(i int) gpu.Addr { return h.mem + gpu.Addr(uint64(i)*n%(uint64(h.opt.size)/n*n)) }
	in := h.rate("ceiling: pinned copy to the GPU", h.opt.runs, copies(dev, host))
	out := h.rate("ceiling: pinned copy from the GPU", h.opt.runs, copies(host, dev))
	h.h2d, h.d2h = in.GBps, out.GBps
	h.add(in)
	h.add(out)
	n -= page
	for _, off := range []gpu.Addr{4, 8, 16, 32, 64, 128} {
		name := "ceiling: pinned copy to the GPU, source off by " + itoa(int(off))
		if h.wanted(name) {
			h.add(h.rate(name, h.opt.runs, copies(dev, func(int) gpu.Addr { return a + off })))
		}
	}
}

// calls are the costs of single calls, from which the ways for small requests
// were chosen.
func (h *bench) calls() {
	const n = 4096
	const many = 128
	a, err := h.dev.Alloc(gpu.KindHost, 1<<20, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	defer h.dev.Free(a)
	s, err := h.dev.NewStream()
	if err != nil {
		h.t.Fatal(err)
	}
	defer s.Close()
	e, err := h.dev.NewEvent()
	if err != nil {
		h.t.Fatal(err)
	}
	defer e.Close()
	at := func(i int) gpu.Addr { return h.mem + gpu.Addr(i*64<<10) }
	host := gpu.HostBytes(a, 1<<20)
	h.latency("call: CopyIn 4K", 2000, func(int) error { return h.dev.CopyIn(h.mem, host[:n]) })
	h.latency("call: CopyOut 4K", 2000, func(int) error { return h.dev.CopyOut(host[:n], h.mem) })
	h.latency("call: stream copy 4K, synchronize", 2000, func(int) error {
		return firstOf(s.Copy(h.mem, a, n), s.Synchronize())
	})
	h.latency("call: stream copy 4K, record, event", 2000, func(int) error {
		return firstOf(s.Copy(h.mem, a, n), s.Record(e), e.Synchronize())
	})
	h.latency("call: stream copy 4K, poll", 2000, func(int) error {
		err := s.Copy(h.mem, a, n)
		for done := false; err == nil && !done; {
			done, err = s.Done()
		}
		return err
	})
	flag := hostWord(a + 512<<10)
	h.latency("call: stream copy 4K, write a flag, spin", 2000, func(i int) error {
		err := firstOf(s.Copy(h.mem, a, n), s.Write(a+512<<10, uint64(i), 4))
		for err == nil && flag.Load() != uint32(i) {
		}
		return err
	})
	h.latency("call: stream copy 64K, synchronize", 1000, func(int) error {
		return firstOf(s.Copy(h.mem, a, 64<<10), s.Synchronize())
	})
	h.latency("call: event query", 2000, func(int) error { _, err := e.Done(); return err })
	h.latency("call: Pointer", 2000, func(int) error { _, err := h.dev.Pointer(h.mem); return err })
	h.latency("call: 128 stream copies 4K, synchronize", 200, func(int) error {
		for i := range many {
			if err := s.Copy(at(i), a+gpu.Addr(i*n), n); err != nil {
				return err
			}
		}
		return s.Synchronize()
	})
	k := coalescer{dev: h.dev}
	if err := k.load(); err != nil {
		h.t.Errorf("kernels: %v", err)
		return
	}
	defer k.close()
	staging, err := h.dev.Alloc(gpu.KindDevice, 1<<20, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	defer h.dev.Free(staging)
	table := host[many*n : many*n]
	for i := range many {
		table = kernels.Segment{Src: uint64(i * n), Dst: uint64(at(i)), Len: n}.Append(table)
	}
	h.latency("call: copy, scatter 128 x 4K, synchronize", 200, func(int) error {
		return firstOf(s.Copy(staging, a, many*n+uint64(len(table))),
			s.Launch(k.scatter, gpu.Dim{X: many}, gpu.Dim{X: 256}, staging, staging+many*n, uint64(many)), s.Synchronize())
	})
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// latency measures single calls, one after the other.
func (h *bench) latency(name string, times int, do func(i int) error) line {
	if !h.wanted(name) {
		return line{}
	}
	times = min(times, int(h.opt.size>>18)) // a small file is for a quick look
	took := make([]float64, times)
	for i := range times + times/4 { // the first quarter is to warm up
		start := time.Now()
		if err := do(i); err != nil {
			h.t.Errorf("%s: %v", name, err)
			return line{}
		}
		took[i%times] = float64(time.Since(start).Nanoseconds()) / 1e3
	}
	slices.Sort(took)
	l := line{Name: name, LatencyUS: took[times/2], P99US: took[times*99/100]}
	h.add(l)
	return l
}

func (h *bench) reads(f *hwFile) {
	h.read("read "+f.name+" one request", f, 1, f.size, h.opt.runs)
	h.read("read "+f.name+" 16x16M", f, 16, 16<<20, h.opt.runs)
	h.read("read "+f.name+" 16x1M", f, 16, 1<<20, h.opt.runs)
	h.read("read "+f.name+" 8x256K", f, 8, 256<<10, h.opt.runs)
	h.read("read "+f.name+" 8x64K", f, 8, 64<<10, h.opt.runs)
	h.read("read "+f.name+" 1x16M", f, 1, 16<<20, h.opt.runs)
	h.read("read "+f.name+" 1x1M", f, 1, 1<<20, h.opt.runs)
}

// small measures single requests of 4 KiB, and batches of them.
func (h *bench) small(f *hwFile) {
	if h.wanted("latency") {
		h.move(f, 16, 1<<20, Request{Buffered: f.buffered, Direct: -1}) // into the page cache
	}
	ctx := context.Background()
	q, res := make([]Request, 1), make([]Result, 1)
	for _, n := range []int64{4 << 10, 64 << 10} {
		for _, write := range []bool{false, true} {
			name := map[bool]string{false: "read ", true: "write "}[write] + map[int64]string{4 << 10: "4K", 64 << 10: "64K"}[n]
			h.latency("latency "+name, 3000, func(int) error {
				off := rand.Int64N(f.size/n) * n
				if write {
					off %= 1 << 30
				}
				q[0] = Request{Write: write, Buffered: f.buffered, Direct: -1, Off: off, Addr: h.mem + gpu.Addr(off), Len: n}
				return h.r.Run(ctx, q, res)
			})
		}
	}
	h.latency("latency pread 4K alone", 3000, func(int) error {
		_, err := unix.Pread(f.buffered, h.r.small.all[0].mem[:4096], rand.Int64N(f.size/page)*page)
		return err
	})
}

func (h *bench) batches(f *hwFile, note string) {
	for _, c := range []struct {
		callers, batch int
	}{{1, 128}, {8, 128}, {16, 128}, {8, 16}} {
		name := "randread 4K callers=" + itoa(c.callers) + " batch=" + itoa(c.batch) + note
		if !h.wanted(name) {
			continue
		}
		l := h.rate(name, h.opt.runs, func() int64 { return h.randread(f, c.callers, c.batch) })
		l.IOPS = l.GBps * 1e9 / 4096
		h.add(l)
	}
}

func (h *bench) randread(f *hwFile, callers, batch int) int64 {
	perCaller := min(30_000, int(f.size/page))
	stride := f.size / int64(callers*batch) / page * page // places on the GPU are apart
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 1))
			q, res := make([]Request, batch), make([]Result, batch)
			for range perCaller / batch {
				for i := range q {
					off := rng.Int64N(f.size/page) * page
					at := h.mem + gpu.Addr(int64(c*batch+i)*stride)
					q[i] = Request{Buffered: f.buffered, Direct: -1, Off: off, Addr: at, Len: page}
				}
				if err := h.r.Run(context.Background(), q, res); err != nil {
					h.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return int64(callers*(perCaller/batch)*batch) * page
}
