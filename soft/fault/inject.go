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

	mu    sync.Mutex
	specs []*schedule
	log   *journal // nil if it is not read
}

// A schedule is a fault and how far it is.
type schedule struct {
	Spec
	seen, fired uint64 // calls that matched; faults that came about
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
	i.mu.Lock()
	for at, s := range i.specs {
		if !s.matches(call, object) || !s.due() {
			continue
		}
		switch s.Kind {
		case Errno, Code:
			err = &Error{Spec: s.Text, Code: s.code}
			if s.errno != 0 {
				err.(*Error).Err = s.errno
			}
		case Short:
			limit = min(limit, s.bytes)
		case Slow:
			delay += s.delay
		case Media, DMA:
			// The drive tells when it happens.
			if !i.breakDrive(s, at) {
				s.seen--
			}
			continue
		default:
			if !i.breakMachine(s, object) {
				s.seen-- // nothing to break yet: the next call tries again
				continue
			}
		}
		i.count(at)
	}
	i.mu.Unlock()
	time.Sleep(delay)
	return limit, err
}

// due counts a call and decides about it.
func (s *schedule) due() bool {
	s.seen++
	switch {
	case s.Times > 0 && s.fired >= s.Times:
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

// breakDrive has the drive under nvidia-fs do something wrong with its next command. It
// returns false if there is no drive yet.
func (i *Injector) breakDrive(s *schedule, at int) bool {
	hit := func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.count(at)
	}
	if s.Kind == Media {
		return i.m.FailNext(hit)
	}
	i.m.Lie(&nvme.Liar{OneIn: 1, Most: 1, Seed: s.Seed, Lies: []nvme.Lie{s.lie}, Notify: hit})
	return true
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
		return unix.Truncate(object, int64(s.bytes)) == nil
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
func (i *Injector) Journal(dir string) (err error) {
	i.log, err = newJournal(dir, i.specs)
	return err
}

// A journal is a file with a line for each fault: its text and how often it came about.
type journal struct {
	file *os.File
	at   []int64 // offset of the counts
}

const digits = 20

func newJournal(dir string, specs []*schedule) (*journal, error) {
	f, err := os.CreateTemp(dir, fmt.Sprintf("%d.*.faults", os.Getpid()))
	if err != nil {
		return nil, err
	}
	j := &journal{file: f}
	var at int64
	for _, s := range specs {
		line := fmt.Sprintf("%s\t%*d\n", s.Text, digits, 0)
		j.at = append(j.at, at+int64(len(line)-digits-1))
		at += int64(len(line))
		if _, err := f.WriteString(line); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// count writes a count. If that fails, the report lacks it: nothing else can be done.
func (j *journal) count(spec int, n uint64) {
	if j != nil {
		_, _ = j.file.WriteAt(fmt.Appendf(nil, "%*d", digits, n), j.at[spec])
	}
}
