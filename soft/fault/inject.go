package fault

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/nvme"
)

// An Injector breaks a machine as its specifications say. It is safe for concurrent use;
// nil injects nothing.
type Injector struct {
	m *soft.Machine

	mu    sync.Mutex // never held while the machine is broken: that waits for transfers, which count
	specs []*schedule
	log   *journal // nil if it is not read

	drive sync.Mutex // held while the drive is told what to do wrong
}

// A schedule is a fault and how far it is.
type schedule struct {
	Spec
	seen, fired uint64 // calls that matched; faults that came about
	begun       uint64 // faults that have not come about yet
	armed       bool   // the drive is to do it with its next command
	owed        bool   // one that was due found nothing to break: the next call tries again
	dice        *rand.Rand
}

// New returns an injector for a machine.
func New(m *soft.Machine, specs []Spec) *Injector {
	i := &Injector{m: m}
	for _, s := range specs {
		i.specs = append(i.specs, &schedule{Spec: s, dice: rand.New(rand.NewPCG(s.Seed, 0))})
	}
	return i
}

// An Error is a failure that was asked for.
type Error struct {
	Spec string
	Err  error // a unix.Errno, or nil
	Code int32 // of cuFile, or 0
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("injected by %q: %v", e.Spec, e.Err)
	}
	return fmt.Sprintf("injected by %q: code %d", e.Spec, e.Code)
}

// Unwrap is the errno.
func (e *Error) Unwrap() error { return e.Err }

// CuFile is the code of cuFile; 0 if there is none.
func (e *Error) CuFile() int32 { return e.Code }

// Before is called before a call that moves n bytes from or to a file, or registers it or
// a buffer. It breaks what is due now. The call must move no more than limit bytes, and
// fail with err if it is not nil.
func (i *Injector) Before(call, object string, n uint64) (limit uint64, err error) {
	limit = n
	if i == nil {
		return limit, nil
	}
	var delay time.Duration
	shortest := -1
	var breaks []int
	i.mu.Lock()
	for at, s := range i.specs {
		if !s.matches(call, object) || !s.due() {
			continue
		}
		switch s.Kind {
		case Errno, Code:
			if err != nil {
				continue // a call fails once
			}
			err = &Error{Spec: s.Text, Code: s.code}
			if s.errno != 0 {
				err.(*Error).Err = s.errno
			}
			i.count(at)
		case Short:
			if s.bytes < limit {
				limit, shortest = s.bytes, at
			}
		case Slow:
			delay += s.delay
			i.count(at)
		default:
			if i.begin(at) {
				breaks = append(breaks, at)
			}
		}
	}
	if shortest >= 0 && err == nil {
		i.count(shortest)
	}
	i.mu.Unlock()
	for _, at := range breaks {
		i.breakNow(at, object)
	}
	time.Sleep(delay)
	return limit, err
}

// begin says that a fault of the machine is about to come about. Call with mu held. It returns
// false if the drive is to do it already.
func (i *Injector) begin(at int) bool {
	s := i.specs[at]
	if s.onDrive() && s.begun > 0 {
		return false
	}
	s.begun++
	return true
}

// breakNow breaks the machine.
func (i *Injector) breakNow(at int, object string) {
	s := i.specs[at]
	broken := false
	if s.onDrive() {
		broken = i.breakDrive(s, at)
	} else {
		broken = i.breakMachine(s, object)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case !broken:
		s.begun--
		s.owed = s.Nth > 0 || s.Every > 0
	case !s.onDrive(): // the drive tells when it happens
		s.begun--
		i.count(at)
	}
}

// onDrive reports whether the fault is one of the drive's next command.
func (s *schedule) onDrive() bool { return s.Kind == Media || s.Kind == DMA }

// due counts a call and decides about it.
func (s *schedule) due() bool {
	if s.owed {
		s.owed = false
		return true
	}
	s.seen++
	switch {
	case s.Times > 0 && s.fired+s.begun >= s.Times:
		return false
	case s.Nth > 0:
		return s.seen == s.Nth
	case s.Every > 0:
		return s.seen%s.Every == 0
	case s.P > 0:
		return s.dice.Float64() < s.P
	}
	return true
}

// count counts a fault that came about. Call with mu held.
func (i *Injector) count(at int) {
	s := i.specs[at]
	s.fired++
	i.log.count(at, s.fired)
}

// breakDrive has the drive under nvidia-fs do something wrong with its next command, in place
// of another fault of the kind, which it was to do. It returns false if there is no drive yet.
func (i *Injector) breakDrive(s *schedule, at int) bool {
	i.drive.Lock()
	defer i.drive.Unlock()
	i.arm(s, true)
	hit := func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		s.begun, s.armed = 0, false
		i.count(at)
	}
	if s.Kind == Media && !i.m.FailNext(hit) {
		i.arm(s, false)
		return false
	}
	if s.Kind == DMA {
		i.m.Lie(&nvme.Liar{OneIn: 1, Most: 1, Seed: s.Seed, Lies: []nvme.Lie{s.lie}, Notify: hit})
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, other := range i.specs {
		if other != s && other.Kind == s.Kind && other.armed {
			other.begun, other.armed = 0, false
		}
	}
	return true
}

// Stop ends what the drive was to do wrong with its next command. What is broken stays broken.
func (i *Injector) Stop() {
	i.drive.Lock()
	defer i.drive.Unlock()
	for _, s := range i.specs {
		i.mu.Lock()
		armed := s.armed
		s.begun, s.armed = 0, false
		i.mu.Unlock()
		switch {
		case armed && s.Kind == Media:
			i.m.FailNext(nil)
		case armed:
			i.m.Lie(nil)
		}
	}
}

func (i *Injector) arm(s *schedule, armed bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s.armed = armed
}

// breakMachine does what happens to the machine, not to one call. It returns false if
// there is nothing to break yet.
func (i *Injector) breakMachine(s *schedule, object string) bool {
	switch s.Kind {
	case Unplug:
		port := i.m.StoragePort()
		if port == nil {
			return false
		}
		port.Unplug()
	case Revoke:
		return i.m.P2P().Revoke() > 0
	case Truncate:
		var st unix.Stat_t // a shorter file would become longer
		return unix.Stat(object, &st) == nil && st.Size > int64(s.bytes) && unix.Truncate(object, int64(s.bytes)) == nil
	case Sticky:
		i.m.GPU.Lose(gpu.Code(s.code), "injected by "+s.Text)
	}
	return true
}

// Fired lists the faults that came about, with their number.
func (i *Injector) Fired() []string {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	var list []string
	for _, s := range i.specs {
		if s.fired > 0 {
			list = append(list, s.Text+": "+human.Count(int(s.fired), "time"))
		}
	}
	return list
}

// Journal makes the injector keep its counts in a new file of a directory, for
// "culvert run". The file outlives the process.
func (i *Injector) Journal(dir string) error {
	j, err := newJournal(dir, i.specs)
	if err == nil {
		i.log = j
	}
	return err
}

// A journal is a file with a line for each fault: its text and how often it came about. It is
// mapped, not open: a program may close descriptors that it did not open, and give their
// numbers to files of its own.
type journal struct {
	text []byte
	at   []int // where the counts are
}

const digits = 20

func newJournal(dir string, specs []*schedule) (*journal, error) {
	f, err := os.CreateTemp(dir, fmt.Sprintf("%d.*.faults", os.Getpid()))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	j := &journal{}
	var text []byte
	for _, s := range specs {
		text = fmt.Appendf(text, "%s\t%*d\n", s.Text, digits, 0)
		j.at = append(j.at, len(text)-digits-1)
	}
	if _, err := f.Write(text); err != nil {
		return nil, err
	}
	j.text, err = unix.Mmap(int(f.Fd()), 0, len(text), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return j, os.NewSyscallError("mmap", err)
}

// count writes a count.
func (j *journal) count(spec int, n uint64) {
	if j != nil {
		copy(j.text[j.at[spec]:], fmt.Appendf(nil, "%*d", digits, n))
	}
}
