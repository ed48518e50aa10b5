package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// Small files share a pack, which goes through GPU memory as one source: to register a
// file and to find its routes takes ten times as long as to move 16 KiB.
const (
	packFile  = 64 << 10  // the largest file of a pack
	packBytes = 128 << 10 // up to which the ring moves a request in its caller
	packFiles = 128
)

// packable reports whether a file of that size may share a pack. A route that is required
// is one between a file and GPU memory, and a file that is to leave the page cache alone
// needs a descriptor of its own.
func (o *Options) packable(size int64) bool {
	return size <= packFile && o.Route == route.None && o.Require == route.None && o.Cache != route.CacheAvoid
}

// units divides the files of a tree into what one job copies: a pack of small files that
// follow each other, or a file. A pack has at most that many files and bytes.
func units(files []TreeFile, packable func(*TreeFile) bool, most int, bytes int64) (list [][]*TreeFile) {
	room, left := 0, int64(0) // of the last unit
	for i := range files {
		f := &files[i]
		switch {
		case !packable(f):
			list, room = append(list, []*TreeFile{f}), 0
		case room == 0 || left < f.Size:
			list, room, left = append(list, []*TreeFile{f}), most-1, bytes-f.Size
		default:
			list[len(list)-1] = append(list[len(list)-1], f)
			room, left = room-1, left-f.Size
		}
	}
	return list
}

// A pack is small files one behind the other.
type pack struct {
	files []*waiting
	ends  []int64 // of the files in the pack

	mu sync.Mutex // errors of the files
}

func (p *pack) add(w *waiting) {
	p.files, p.ends = append(p.files, w), append(p.ends, p.size()+w.source.Size)
}

func (p *pack) size() int64 {
	if len(p.ends) == 0 {
		return 0
	}
	return p.ends[len(p.ends)-1]
}

// Name is what statistics call the pack.
func (p *pack) name(path func(*waiting) string) string {
	if len(p.files) == 1 {
		return path(p.files[0])
	}
	return fmt.Sprintf("%s and %d more", path(p.files[0]), len(p.files)-1)
}

// each calls move for the part of each file that is in buf, which is the pack at off. An
// error is the file's own: the others of the pack are copied. What it did not move is
// cleared.
func (p *pack) each(buf []byte, off int64, move func(w *waiting, part []byte, at int64) (int, error)) {
	i := sort.Search(len(p.ends), func(i int) bool { return p.ends[i] > off })
	for ; i < len(p.files) && len(buf) > 0; i++ {
		w := p.files[i]
		at := off - (p.ends[i] - w.source.Size)
		part := buf[:min(int64(len(buf)), p.ends[i]-off)]
		n, err := move(w, part, at)
		clear(part[n:])
		if err != nil {
			p.fail(w, err)
		}
		buf, off = buf[len(part):], off+int64(len(part))
	}
}

func (p *pack) fail(w *waiting, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (p *pack) failed(w *waiting) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return w.err != nil
}

var errOneWay = fmt.Errorf("a pack of files has one direction: %w", unix.EBADF)

// packSource is the files of a pack that are read.
type packSource struct{ *pack }

// Name is what statistics call the source.
func (p packSource) Name() string { return p.name(func(w *waiting) string { return w.res.Source }) }

// ReadAt reads the files.
func (p packSource) ReadAt(buf []byte, off int64) (int, error) {
	n := int(min(int64(len(buf)), max(0, p.size()-off)))
	p.each(buf[:n], off, func(w *waiting, part []byte, at int64) (int, error) {
		n, err := w.in.ReadAt(part, at)
		if errors.Is(err, io.EOF) {
			err = w.truncated(at + int64(n))
		}
		return n, err
	})
	if n < len(buf) {
		return n, io.EOF
	}
	return n, nil
}

// truncated is the error of a source that has become shorter.
func (w *waiting) truncated(size int64) error {
	return (&pump{res: &w.res}).truncated(size)
}

func (p packSource) WriteAt([]byte, int64) (int, error) { return 0, errOneWay }

// packDest is the new files of a pack.
type packDest struct{ *pack }

// Name is what statistics call the destination.
func (p packDest) Name() string { return p.name(func(w *waiting) string { return w.res.Dest }) }

func (p packDest) ReadAt([]byte, int64) (int, error) { return 0, errOneWay }

// WriteAt writes the files.
func (p packDest) WriteAt(buf []byte, off int64) (int, error) {
	p.each(buf, off, func(w *waiting, part []byte, at int64) (int, error) {
		if p.failed(w) {
			return len(part), nil
		}
		_, err := w.out.WriteAt(part, at)
		return len(part), err
	})
	return len(buf), nil
}

// copyPack copies small files together. Those that turn out to be none are copied apart.
func (c *treeCopy) copyPack(ctx context.Context, files []*TreeFile) {
	p, apart := &pack{}, []*waiting(nil)
	for _, f := range files {
		if ctx.Err() != nil {
			break
		}
		w := c.begin(f)
		switch {
		case w == nil:
		case c.opts.packable(w.source.Size) && p.size()+w.source.Size <= packBytes && !sparse(w.fileCopy):
			p.add(w)
		default:
			apart = append(apart, w)
		}
	}
	if err := c.movePack(ctx, p); err != nil {
		for _, w := range p.files {
			p.fail(w, err)
		}
	}
	for _, w := range p.files {
		if w.err == nil {
			w.err = w.finish()
		}
		c.filled(ctx, w)
	}
	for _, w := range apart {
		c.fillApart(ctx, w)
	}
}

// sparse reports whether a file has holes that a copy keeps.
func sparse(c *fileCopy) bool {
	if c.source.Blocks*512 >= c.source.Size {
		return false
	}
	hole, err := unix.Seek(int(c.in.Fd()), 0, unix.SEEK_HOLE)
	return err == nil && hole < c.source.Size
}

// movePack moves the data of a pack.
func (c *treeCopy) movePack(ctx context.Context, p *pack) error {
	size := p.size()
	if size == 0 {
		return context.Cause(ctx)
	}
	if err := c.opts.Limit.Wait(ctx, size); err != nil {
		return err
	}
	whole, err := c.packMemory()
	if err != nil {
		return err
	}
	defer func() { c.packMem <- whole }()
	mem := whole.Slice(0, uint64(size))
	from, err := c.drv.RegisterSource(packSource{p})
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := c.drv.RegisterSource(packDest{p})
	if err != nil {
		return err
	}
	defer to.Close()
	read, err := from.ReadAt(ctx, mem, 0)
	if err == nil && read.Bytes < size {
		err = fmt.Errorf("%s: %w: %d of %d bytes", from.Name(), io.ErrUnexpectedEOF, read.Bytes, size)
	}
	if err != nil {
		return err
	}
	c.opts.step()
	write, err := to.WriteAt(ctx, mem, 0)
	if err == nil && write.Bytes < size {
		err = fmt.Errorf("%s: %w: %d of %d bytes", to.Name(), io.ErrShortWrite, write.Bytes, size)
	}
	p.share(&read, &write)
	return err
}

// share gives the receipts to the results of the files: all of them to the first that is
// complete, since the bytes of the others are in them.
func (p *pack) share(read, write *route.Receipt) {
	explainPack(read)
	explainPack(write)
	for _, w := range p.files {
		if w.err == nil {
			w.res.Bytes = w.source.Size
			w.res.Read, w.res.Write, read, write = read, write, nil, nil
		}
	}
}

// explainPack says why the routes of files were not used: to them a pack is no file.
func explainPack(r *route.Receipt) {
	for id, d := range r.Declined {
		if d != nil && d.Test == "source" {
			r.Declined[id] = &route.Decline{Route: d.Route, Test: "size", Evidence: "files of up to 64 KiB share a pack, unless a route is required: to find a route for each takes longer than to move it"}
		}
	}
}

// packMemory returns GPU memory for a pack. It goes back to packMem, which has room for
// that of all jobs.
func (c *treeCopy) packMemory() (gpu.Span, error) {
	select {
	case mem := <-c.packMem:
		return mem, nil
	default:
	}
	dev, err := c.drv.Device(c.opts.GPU)
	if err != nil {
		return gpu.Span{}, err
	}
	addr, err := dev.Alloc(gpu.KindDevice, packBytes, 0)
	return gpu.Span{Dev: c.opts.GPU, Base: addr, Len: packBytes}, err
}

// freePackMemory frees what packMemory allocated.
func (c *treeCopy) freePackMemory() (err error) {
	close(c.packMem)
	for mem := range c.packMem {
		dev, derr := c.drv.Device(c.opts.GPU)
		if derr == nil {
			derr = dev.Free(mem.Base)
		}
		err = errors.Join(err, derr)
	}
	return err
}
