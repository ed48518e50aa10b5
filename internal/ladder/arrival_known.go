package ladder

import (
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/internal/blockstack"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// A stackKey is one direction of a route over one block stack. A stack that changes
// has another key, so nothing that was learned about it remains.
type stackKey struct {
	route route.ID
	dir   route.Dir
	stack string
}

// A knownStack is what transfers have shown about a stackKey.
type knownStack struct {
	mu      sync.Mutex // held while writes are proved
	proved  atomic.Bool
	lie     atomic.Pointer[route.Decline]
	strikes atomic.Int32 // writes that read back otherwise
	proofs  atomic.Int32 // transfers that were compared widely since the last difference
}

// knownStacks is what is known about the block stacks of one machine.
type knownStacks struct{ m sync.Map } // from stackKey to *knownStack

// realStacks are those of the real machine: every ladder of the process shares them.
var realStacks knownStacks

// stacksOf are the stacks of a machine. Each ladder of the software machine has its
// own: machines come and go in one process.
func stacksOf(o dev.OS) *knownStacks {
	if dev.Simulated(o) {
		return new(knownStacks)
	}
	return &realStacks
}

func (k *knownStacks) get(key stackKey) *knownStack {
	if s, ok := k.m.Load(key); ok {
		return s.(*knownStack)
	}
	s, _ := k.m.LoadOrStore(key, new(knownStack))
	return s.(*knownStack)
}

// A provedFile is what was proved about one open file.
type provedFile struct {
	stack string
	known [len(route.ByRoute{})][2]*knownStack // by route and direction
	// reads says by which routes a read was compared widely.
	reads [len(route.ByRoute{})]atomic.Bool
	// warm says that the last sample was in the page cache.
	warm atomic.Bool
	// back is a descriptor to read what was written; -1 if there is none.
	back func() int
}

// file returns what is known about an open file.
func (v *prover) file(f *storage.File) *provedFile {
	if p, ok := v.files.Load(f); ok {
		return p.(*provedFile)
	}
	p := &provedFile{stack: f.Facts.FS + " " + f.Facts.Dev}
	if s, err := blockstack.Look(v.os, f.Facts); err == nil {
		p.stack = s.Key()
	}
	for id := range p.known {
		for dir := range p.known[id] {
			p.known[id][dir] = v.stacks.get(stackKey{route.ID(id), route.Dir(dir), p.stack})
		}
	}
	fd := -1
	p.back = sync.OnceValue(func() int {
		if f.Readable() {
			return f.Direct()
		}
		fd = reopenToRead(f)
		return fd
	})
	got, known := v.files.LoadOrStore(f, p)
	if !known {
		f.OnClose(func() {
			v.files.Delete(f)
			closeIfOpen(fd)
		})
	}
	return got.(*provedFile)
}

func (v *prover) known(id route.ID, dir route.Dir, f *storage.File) *knownStack {
	return v.file(f).known[id][dir]
}

// trialTransfers is how many transfers of a stack, in each direction of a route, are
// compared widely before samples will do. A stack that lies once in n transfers passes
// with probability (1-1/n)^64: 8 in a million if n is 6, about a half if n is 100.
const trialTransfers = 64

// onTrial reports whether an op is compared widely. started are those of its batch
// that already are.
func (v *prover) onTrial(id route.ID, op *Op, started int) bool {
	return int(v.known(id, op.Dir, op.file()).proofs.Load())+started < v.trial
}

// learned says why an op must not take a direct route: its stack has lied, or this op
// was passed on.
func (v *prover) learned(id route.ID, op *Op) *route.Decline {
	if v == nil || op.file() == nil {
		return nil
	}
	for _, d := range op.passed {
		if d.Route == id {
			return d
		}
	}
	return v.known(id, op.Dir, op.file()).lie.Load()
}

// condemn remembers a lie, and logs the first one of a stack. A stack that lies about
// reads is not trusted with writes.
func (v *prover) condemn(id route.ID, op *Op, evidence string) *route.Decline {
	d := decline(id, "arrival", evidence, "use another drive, driver or file system; culvert check draws the block stack")
	first := v.known(id, op.Dir, op.file()).lie.CompareAndSwap(nil, d)
	if op.Dir == route.Read {
		v.known(id, route.Write, op.file()).lie.CompareAndSwap(nil, d)
	}
	if first && v.log != nil {
		v.log.Error("a direct route reported bytes that did not arrive; it is not used on this block stack any more",
			"route", id.String(), "direction", op.Dir.String(), "file", op.Src.Name(), "stack", v.file(op.file()).stack, "evidence", evidence)
	}
	return v.known(id, op.Dir, op.file()).lie.Load()
}
