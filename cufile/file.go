package cufile

import (
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
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/gate"
	"github.com/culvert-io/culvert/internal/ladder"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/trace"
	"github.com/culvert-io/culvert/route"
)

// A File is a registered file: cuFile's handle. It owns a duplicate of the
// descriptor, so the caller may close theirs.
type File struct {
	drv *Driver
	fd  int           // the caller's number, under which it was registered; -1 for a Source
	st  *storage.File // nil for a Source
	src ladder.Source // st or the Source

	mu sync.Mutex // serialises Close
	io gate.Gate  // transfers pass through: closing waits for them

	// plans are indexed by location: a transfer pays an array index.
	plans   [maxGPUs + 1]atomic.Pointer[ladder.Plan]
	planMu  sync.Mutex
	require requirement // under planMu

	sums sums

	traced trace.FileRef
}

// A requirement is the route that transfers must take, or that and any better one.
type requirement struct {
	route    route.ID // None for any
	orBetter bool
}

// maxGPUs is more than one machine has had so far.
const maxGPUs = 64

// A location is where memory is: 0 is host memory, i+1 is GPU i.
type location int

func locationOf(dev int, kind gpu.Kind) location {
	if !kind.OnDevice() {
		return 0
	}
	return location(dev + 1)
}

// badFlags are the open flags that cuFile refuses: they change the meaning of an
// offset.
const badFlags = unix.O_APPEND

// Register registers an open file. It works on any regular file or block device
// that can be read with pread, on any file system, with or without O_DIRECT, but not with
// O_APPEND. A descriptor that is registered already is refused with
// HandleAlreadyRegistered, as by cuFile; to register a file twice, open it twice.
func (d *Driver) Register(f *os.File) (*File, error) {
	if f == nil {
		return d.register(-1, "")
	}
	return d.register(int(f.Fd()), f.Name())
}

// RegisterFD is Register of a descriptor.
func (d *Driver) RegisterFD(fd int) (*File, error) { return d.register(fd, "") }

// register registers a descriptor. called is the owner's name for a file that has no
// name yet.
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
		return nil, fail(st.Name, InvalidFileOpenFlag, errors.New("opened with O_APPEND"), "open it without O_APPEND; writes use explicit offsets")
	}
	if called != "" && nameless(st.Name) {
		st.Name = called
	}
	if faults := d.faults(); faults != nil {
		if _, err := faults.Before("register", st.Name, 0); err != nil {
			st.Close()
			return nil, fail(st.Name, codeFor(err), err, "")
		}
	}
	if d.config.ODirect {
		st.ForceDirect()
	}
	f := &File{drv: d, fd: fd, st: st, src: ladder.FileSource(st)}
	if err := d.addFile(f); err != nil {
		st.Close()
		return nil, err
	}
	d.log.Debug("cufile: register", "file", st.Name, "file_system", st.Facts.FS, "o_direct", st.CallerDirect())
	return f, nil
}

// nameless reports the kernel's name of a file that was opened with O_TMPFILE.
func nameless(name string) bool {
	return strings.HasPrefix(filepath.Base(name), "#") && strings.HasSuffix(name, " (deleted)")
}

// addFile enters the file. A descriptor number that was closed and reused for another
// open file is not "registered twice".
func (d *Driver) addFile(f *File) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.st == nil {
		d.files[f] = struct{}{}
		return nil
	}
	if old, ok := d.byFD[f.fd]; ok && old.st.Same(f.st) {
		return &Error{"register", f.Name(), HandleAlreadyRegistered, fmt.Errorf("descriptor %d is already registered", f.fd), "deregister it first"}
	}
	d.files[f] = struct{}{}
	d.byFD[f.fd] = f
	return nil
}

// Name is the path of the file as the kernel reports it. A file that has no name yet
// has the name of its os.File, and a Source its own.
func (f *File) Name() string { return f.src.Name() }

// Size is the size of the file now.
func (f *File) Size() (int64, error) {
	if err := f.enter("find the size of"); err != nil {
		return 0, err
	}
	defer f.leave()
	return f.src.Size()
}

var errDeregistered = errors.New("the handle was deregistered")

// enter keeps the file open until leave. Transfers use a shard of their own instead.
func (f *File) enter(op string) error {
	if !f.io.Enter(0) {
		return &Error{Op: op, Object: f.Name(), Code: HandleNotRegistered, Err: errDeregistered}
	}
	return nil
}

func (f *File) leave() { f.io.Leave(0) }

// Close waits for transfers that use the file, then deregisters it. The caller's
// descriptor stays open.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.io.Close() {
		return &Error{Op: "deregister", Object: f.Name(), Code: HandleNotRegistered}
	}
	d := f.drv
	d.revokeFile(f)
	d.mu.Lock()
	delete(d.files, f)
	if d.byFD[f.fd] == f {
		delete(d.byFD, f.fd)
	}
	d.mu.Unlock()
	f.sums.end()
	if s, ok := f.src.(*withDevice); ok {
		s.close()
	}
	if f.st == nil {
		return nil
	}
	return f.st.Close()
}

// Stats is the sum of all transfers of the file so far.
func (f *File) Stats() Stats { return f.sums.stats() }

// Plan lists the routes between the file and GPU dev. If only a transfer can tell
// whether a route works, Plan reads one block of the file.
func (f *File) Plan(dev int) (*route.Plan, error) {
	if err := f.enter("find a route for"); err != nil {
		return nil, err
	}
	defer f.leave()
	if dev < 0 {
		return nil, f.noGPU(dev)
	}
	p, err := f.plan(locationOf(dev, gpu.KindDevice))
	if err != nil {
		return nil, err
	}
	return p.Try(f.src).Describe(), nil
}

func (f *File) noGPU(dev int) error {
	return &Error{Op: "find a route for", Object: f.Name(), Code: DeviceNotFound, Err: fmt.Errorf("GPU %d not found", dev)}
}

// SetCache says how reads of the file over staged routes use the page cache, from now
// on. total is how many bytes the caller is going to read, of this file and others
// beside it; 0 is all of this file.
func (f *File) SetCache(mode route.CacheMode, total int64) error {
	const op = "set the page cache mode of"
	if err := f.enter(op); err != nil {
		return err
	}
	defer f.leave()
	if mode > route.CacheAvoid || total < 0 {
		return &Error{Op: op, Object: f.Name(), Code: InvalidValue, Err: fmt.Errorf("%v, %d bytes", mode, total)}
	}
	if f.st == nil {
		return nil // a Source has no page cache
	}
	f.st.Reads().SetMode(mode, total)
	drv := f.drv
	drv.revokeFile(f) // a lease is a read through the page cache
	return nil
}

// StartReading tells the storage which bytes will be read first, and does not wait for
// them. It does nothing where they would not go through the page cache.
func (f *File) StartReading(off, n int64) error {
	if err := f.enter("read"); err != nil {
		return err
	}
	defer f.leave()
	if f.st != nil {
		f.st.StartReading(off, n)
	}
	return nil
}

// Require makes transfers between the file and GPUs fail unless they use the route id.
// It fails at once if the file and GPU dev cannot use it, and changes nothing then. On
// a software machine that nothing asked for (machine.Machine.Automatic) it always fails.
// route.None removes the requirement.
func (f *File) Require(dev int, id route.ID) error {
	return f.setRequirement(dev, requirement{route: id})
}

// RequireAtLeast makes transfers between the file and GPUs fail unless all of their
// bytes use the route id or a better one. It fails at once if the file and GPU dev
// have none, and changes nothing then. On a software machine that nothing asked for it
// always fails.
func (f *File) RequireAtLeast(dev int, id route.ID) error {
	return f.setRequirement(dev, requirement{id, true})
}

func (f *File) setRequirement(dev int, r requirement) error {
	op := "require " + r.route.String() + " for"
	if err := f.enter(op); err != nil {
		return err
	}
	defer f.leave()
	switch {
	case dev < 0:
		return f.noGPU(dev)
	case r.route > route.Host:
		return &Error{Op: op, Object: f.Name(), Code: InvalidValue, Err: fmt.Errorf("unknown route %d", r.route)}
	}
	if err := f.drv.m.Require(r.route); err != nil {
		return &Error{Op: op, Object: f.Name(), Code: IONotSupported, Err: err}
	}
	at := locationOf(dev, gpu.KindDevice)
	f.planMu.Lock()
	defer f.planMu.Unlock()
	l, err := f.drv.ladderOf(dev, gpu.KindDevice)
	if err != nil {
		return &Error{Op: op, Object: f.Name(), Code: IONotSupported, Err: err}
	}
	p := f.planOn(l)
	if r.route != route.None {
		p = p.Try(f.src)
	}
	if p, err = r.apply(p); err != nil {
		return &Error{Op: op, Object: f.Name(), Code: IONotSupported, Err: err}
	}
	f.require = r
	for i := range f.plans {
		f.plans[i].Store(nil)
	}
	f.plans[at].Store(p)
	f.drv.revokeFile(f)
	f.logPlan(at, p)
	return nil
}

// apply restricts a plan to the required routes.
func (r requirement) apply(p *ladder.Plan) (*ladder.Plan, error) {
	switch {
	case r.route == route.None:
		return p, nil
	case r.orBetter:
		return p.AtLeast(r.route)
	}
	return p.Only(r.route)
}

// planOn is the plan of a ladder without the routes that the configuration denies the
// file.
func (f *File) planOn(l *ladder.Ladder) *ladder.Plan {
	p := l.Plan(f.src)
	if f.st == nil {
		return p
	}
	if named := f.drv.config.Denylist.names(f.st, dev.Of(f.drv.m)); named != "" {
		return p.Staged("the denylist names "+named, "remove it from denylist in cufile.json, or from Config.Denylist")
	}
	return p
}

// plan returns the plan for memory at a location; the first call probes the routes.
func (f *File) plan(at location) (*ladder.Plan, error) {
	if at < 0 || int(at) >= len(f.plans) {
		return nil, f.noGPU(int(at) - 1)
	}
	if p := f.plans[at].Load(); p != nil {
		return p, nil
	}
	f.planMu.Lock()
	defer f.planMu.Unlock()
	kind := gpu.KindDevice
	if at == 0 {
		kind = gpu.KindNone
	}
	l, err := f.drv.ladderOf(int(at)-1, kind)
	if err != nil {
		return nil, err
	}
	p := f.planOn(l)
	if at != 0 {
		r := f.require
		if r.route == route.None {
			r = f.drv.config.requirement()
		}
		if p, err = r.apply(p); err != nil {
			return nil, err
		}
	}
	f.plans[at].Store(p)
	f.logPlan(at, p)
	return p, nil
}

// Sync writes the file to stable storage.
func (f *File) Sync() error {
	if err := f.enter("sync"); err != nil {
		return err
	}
	defer f.leave()
	if f.st == nil {
		return f.src.(interface{ Sync() error }).Sync()
	}
	return os.NewSyscallError("fdatasync", unix.Fdatasync(f.st.FD()))
}
