package cufile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/gate"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// A File is a registered file: cuFile's handle. It owns a duplicate of the
// descriptor, so the caller may close theirs.
type File struct {
	drv *Driver
	fd  int // the caller's number, under which it was registered
	st  *storage.File

	mu sync.Mutex // serialises Close
	io gate.Gate  // transfers pass through: closing waits for them

	// plans holds what was found out, by place: a transfer pays an array index.
	plans   [maxGPUs + 1]atomic.Pointer[route.Plan]
	planMu  sync.Mutex
	require wish // under planMu

	sums sums
}

// A wish is the route that transfers must take, or that and any better one.
type wish struct {
	route    route.ID // None for any
	orBetter bool
}

// maxGPUs is more than one machine has had so far.
const maxGPUs = 64

// A place is where memory is, as far as a plan cares: 0 is host memory, i+1 is
// GPU i.
type place int

func placeOf(dev int, kind gpu.Kind) place {
	if !kind.OnDevice() {
		return 0
	}
	return place(dev + 1)
}

// badFlags are the open flags that cuFile refuses: they change what an offset
// means, or whether the file has one.
const badFlags = unix.O_APPEND

// Register registers an open file. It works on any regular file or block device
// that can be read with pread, on any file system, with or without O_DIRECT.
func (d *Driver) Register(f *os.File) (*File, error) {
	if f == nil {
		return d.register(-1, "")
	}
	return d.register(int(f.Fd()), f.Name())
}

// RegisterFD registers a descriptor.
func (d *Driver) RegisterFD(fd int) (*File, error) { return d.register(fd, "") }

// register registers a descriptor. called is what its owner calls the file, for
// one that has no name yet.
func (d *Driver) register(fd int, called string) (*File, error) {
	fail := func(name string, c Code, err error, fix string) error {
		return &Error{"register", name, c, err, fix}
	}
	name := "descriptor " + strconv.Itoa(fd)
	if fd < 0 {
		return nil, fail(name, InvalidValue, unix.EBADF, "")
	}
	if err := d.use(); err != nil {
		return nil, fail(name, CodeOf(err), err, "")
	}
	st, err := storage.Adopt(fd)
	switch {
	case errors.Is(err, storage.ErrFileType):
		return nil, fail(name, InvalidFileType, err, "")
	case err != nil:
		return nil, fail(name, InvalidValue, err, "")
	case st.Flags()&badFlags != 0:
		st.Close()
		return nil, fail(st.Name, InvalidFileOpenFlag, errors.New("opened with O_APPEND"), "open it without: writes go to offsets")
	}
	if called != "" && nameless(st.Name) {
		st.Name = called
	}
	f := &File{drv: d, fd: fd, st: st}
	if err := d.addFile(f); err != nil {
		st.Close()
		return nil, err
	}
	d.log.Debug("cufile: register", "file", st.Name, "file_system", st.Facts.FS, "o_direct", st.CallerDirect())
	return f, nil
}

// nameless reports whether this is the kernel's name of a file that was opened
// with O_TMPFILE.
func nameless(name string) bool {
	return strings.HasPrefix(filepath.Base(name), "#") && strings.HasSuffix(name, " (deleted)")
}

// addFile enters the file. A descriptor number that was closed and now stands
// for another open file is not "registered twice".
func (d *Driver) addFile(f *File) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old, ok := d.byFD[f.fd]; ok && old.st.Same(f.st) {
		return &Error{"register", f.st.Name, HandleAlreadyRegistered, fmt.Errorf("descriptor %d is registered", f.fd), "deregister it first"}
	}
	d.files[f] = struct{}{}
	d.byFD[f.fd] = f
	return nil
}

// Name is the path of the file as the kernel tells it. A file that has no name
// yet is called what its os.File calls it.
func (f *File) Name() string { return f.st.Name }

// Size is the size of the file now.
func (f *File) Size() (int64, error) {
	if err := f.enter("find the size of"); err != nil {
		return 0, err
	}
	defer f.leave()
	return f.st.Size()
}

var errDeregistered = errors.New("the handle was deregistered")

// enter keeps the file open until leave, for all but transfers, which have a
// shard: the number of a descriptor that was closed may be another file's.
func (f *File) enter(op string) error {
	if !f.io.Enter(0) {
		return &Error{Op: op, Object: f.st.Name, Code: HandleNotRegistered, Err: errDeregistered}
	}
	return nil
}

func (f *File) leave() { f.io.Leave(0) }

// Close deregisters the file after the transfers that use it have ended. The
// caller's descriptor stays open.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.io.Close() {
		return &Error{Op: "deregister", Object: f.st.Name, Code: HandleNotRegistered}
	}
	d := f.drv
	d.recallFile(f)
	d.mu.Lock()
	delete(d.files, f)
	if d.byFD[f.fd] == f {
		delete(d.byFD, f.fd)
	}
	d.mu.Unlock()
	f.sums.end()
	return f.st.Close()
}

// Stats is the sum of all transfers of the file so far.
func (f *File) Stats() Stats { return f.sums.stats() }

// Plan says how the file reaches GPU dev: the usable routes, and why not others.
func (f *File) Plan(dev int) (*route.Plan, error) {
	if err := f.enter("find a route for"); err != nil {
		return nil, err
	}
	defer f.leave()
	if dev < 0 {
		return nil, f.noGPU(dev)
	}
	return f.plan(placeOf(dev, gpu.KindDevice))
}

func (f *File) noGPU(dev int) error {
	return &Error{Op: "find a route for", Object: f.st.Name, Code: DeviceNotFound, Err: fmt.Errorf("there is no GPU %d", dev)}
}

// Require makes transfers between the file and GPUs fail unless they go by the
// route id. It fails at once when the file and GPU dev cannot use it, and changes
// nothing then. route.None takes the wish back.
func (f *File) Require(dev int, id route.ID) error { return f.wishFor(dev, wish{route: id}) }

// RequireAtLeast makes transfers between the file and GPUs fail unless all of
// their bytes go by the route id or a better one. It fails at once when the file
// and GPU dev have none, and changes nothing then.
func (f *File) RequireAtLeast(dev int, id route.ID) error { return f.wishFor(dev, wish{id, true}) }

func (f *File) wishFor(dev int, w wish) error {
	op := "require " + w.route.String() + " for"
	if err := f.enter(op); err != nil {
		return err
	}
	defer f.leave()
	switch {
	case dev < 0:
		return f.noGPU(dev)
	case w.route > route.Host:
		return &Error{Op: op, Object: f.st.Name, Code: InvalidValue, Err: errors.New("there is no such route")}
	}
	f.planMu.Lock()
	defer f.planMu.Unlock()
	old := f.require
	f.require = w
	p, err := f.findPlan(placeOf(dev, gpu.KindDevice))
	if err != nil {
		f.require = old
		return &Error{Op: op, Object: f.st.Name, Code: IONotSupported, Err: err}
	}
	for i := range f.plans {
		f.plans[i].Store(nil)
	}
	f.plans[placeOf(dev, gpu.KindDevice)].Store(p)
	f.drv.recallFile(f)
	f.logPlan(placeOf(dev, gpu.KindDevice), p)
	return nil
}

func (f *File) plan(at place) (*route.Plan, error) {
	if at < 0 || int(at) >= len(f.plans) {
		return nil, f.noGPU(int(at) - 1)
	}
	if p := f.plans[at].Load(); p != nil {
		return p, nil
	}
	f.planMu.Lock()
	defer f.planMu.Unlock()
	p, err := f.findPlan(at)
	if err == nil {
		f.plans[at].Store(p)
		f.logPlan(at, p)
	}
	return p, err
}

// findPlan probes the routes. The caller holds planMu.
func (f *File) findPlan(at place) (*route.Plan, error) {
	kind := gpu.KindDevice
	if at == 0 {
		kind = gpu.KindNone
	}
	l, err := f.drv.ladderOf(int(at)-1, kind)
	if err != nil {
		return nil, err
	}
	p := l.Plan(f.st)
	switch {
	case at == 0 || f.require.route == route.None:
		return p, nil
	case f.require.orBetter:
		return p.AtLeast(f.require.route)
	}
	return p.Only(f.require.route)
}

// ReadAt reads mem.Len bytes of the file at off into mem. Fewer bytes without an
// error means that the file ended. The receipt is valid also with an error.
func (f *File) ReadAt(ctx context.Context, mem gpu.Span, off int64) (route.Receipt, error) {
	return f.do(ctx, route.Read, mem, off)
}

// WriteAt writes mem to the file at off. The bytes are on stable storage only
// after Sync.
func (f *File) WriteAt(ctx context.Context, mem gpu.Span, off int64) (route.Receipt, error) {
	return f.do(ctx, route.Write, mem, off)
}

// Sync puts what was written on stable storage.
func (f *File) Sync() error {
	if err := f.enter("sync"); err != nil {
		return err
	}
	defer f.leave()
	return os.NewSyscallError("fdatasync", unix.Fdatasync(f.st.FD()))
}
