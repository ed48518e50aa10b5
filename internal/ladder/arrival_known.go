package ladder

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/blockstack"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// A stackKey is one direction of a route between one block stack and one GPU: another GPU
// is behind other switches and address translation. A stack that changes has another key,
// so nothing that was learned about it remains.
type stackKey struct {
	gpu   gpu.UUID
	route route.ID
	dir   route.Dir
	stack string
}

// A knownStack is what transfers have shown about a stackKey.
type knownStack struct {
	mu      sync.Mutex // held while writes are proved
	proved  atomic.Bool
	lie     atomic.Pointer[route.Decline]
	strikes atomic.Int32 // differences that another process may have made
	proofs  atomic.Int32 // transfers that were compared widely since the last difference
}

// knownStacks is what is known about the block stacks of one machine.
type knownStacks struct {
	m       sync.Map // from stackKey to *knownStack
	writing rangeLock
}

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

// A provedFile is what was proved about one open file or DirectSource.
type provedFile struct {
	id    string // the same for all open files of one
	stack string
	known [len(route.ByRoute{})][2]*knownStack // by route and direction
	// reads says by which routes a read was compared widely.
	reads [len(route.ByRoute{})]atomic.Bool
	host  witness
}

// file returns what is known about an open file.
func (v *prover) file(f *storage.File) *provedFile {
	if p, ok := v.files.Load(f); ok {
		return p.(*provedFile)
	}
	stack := f.Facts.FS + " " + f.Facts.Dev
	if s, err := blockstack.Look(v.os, f.Facts); err == nil {
		stack = s.Key()
	}
	fd := -1
	host := &fileWitness{f: f}
	host.back = sync.OnceValue(func() int {
		if f.Readable() {
			return f.Direct()
		}
		fd = reopenToRead(f)
		return fd
	})
	got, known := v.files.LoadOrStore(f, v.newProved(fmt.Sprintf("%s %d", f.Facts.Dev, f.Facts.Inode), stack, host))
	if !known {
		f.OnClose(func() {
			v.files.Delete(f)
			closeIfOpen(fd)
		})
	}
	return got.(*provedFile)
}

// fileOf is what is known about the source of an op, looked up once; nil for a source that
// has no direct route.
func (v *prover) fileOf(op *Op) *provedFile {
	if op.proof == nil {
		if f := op.file(); f != nil {
			op.proof = v.file(f)
		} else if s, ok := op.Src.(DirectSource); ok {
			op.proof = v.source(s)
		}
	}
	return op.proof
}

// source returns what is known about a DirectSource.
func (v *prover) source(s DirectSource) *provedFile {
	if p, ok := v.files.Load(s); ok {
		return p.(*provedFile)
	}
	got, known := v.files.LoadOrStore(s, v.newProved(s.Path()+" "+s.Name(), s.Path(), sourceWitness{s}))
	if !known {
		s.OnClose(func() { v.files.Delete(s) })
	}
	return got.(*provedFile)
}

func (v *prover) newProved(id, stack string, host witness) *provedFile {
	p := &provedFile{id: id, stack: stack, host: host}
	for id := range p.known {
		for dir := range p.known[id] {
			p.known[id][dir] = v.stacks.get(stackKey{v.gpu, route.ID(id), route.Dir(dir), stack})
		}
	}
	return p
}

func (v *prover) known(id route.ID, dir route.Dir, op *Op) *knownStack {
	return v.fileOf(op).known[id][dir]
}

// trialTransfers is how many transfers of a stack, in each direction of a route, are
// compared widely before samples will do. A stack that lies once in n transfers passes
// with probability (1-1/n)^64: 8 in a million if n is 6, about a half if n is 100.
const trialTransfers = 64

// onTrial reports whether an op is compared widely. started are those of its batch
// that already are.
func (v *prover) onTrial(id route.ID, op *Op, started int) bool {
	return int(v.known(id, op.Dir, op).proofs.Load())+started < v.trial
}

// learned says why an op must not take a direct route: its stack has lied, or this op
// was passed on.
func (v *prover) learned(id route.ID, op *Op) *route.Decline {
	if v == nil {
		return nil
	}
	for _, d := range op.passed {
		if d.Route == id {
			return d
		}
	}
	if p := v.fileOf(op); p != nil {
		return p.known[id][op.Dir].lie.Load()
	}
	return nil
}

// distrust says why a source cannot take a direct route any more: its reads have not arrived.
// If only its writes have not, the traits say so.
func (v *prover) distrust(t *Traits, src Source) *route.Decline {
	if v == nil || !t.Direct {
		return nil
	}
	p := v.fileOf(&Op{Src: src})
	if p == nil {
		return nil
	}
	if p.known[t.ID][route.Write].lie.Load() != nil {
		t.Scope = strings.TrimSuffix("only reads, because writes did not arrive: "+t.Scope, ": ")
	}
	return p.known[t.ID][route.Read].lie.Load()
}

// condemn remembers a lie, and logs the first one of a stack. A stack that lies about
// reads is not trusted with writes.
func (v *prover) condemn(id route.ID, op *Op, evidence string) *route.Decline {
	d := decline(id, "arrival", evidence, lieFix(id))
	first := v.known(id, op.Dir, op).lie.CompareAndSwap(nil, d)
	if op.Dir == route.Read {
		v.known(id, route.Write, op).lie.CompareAndSwap(nil, d)
	}
	if first && v.log != nil {
		v.log.Error("a direct route reported bytes that did not arrive; it is not used on this block stack any more",
			"route", id.String(), "direction", op.Dir.String(), "file", op.Src.Name(), "stack", v.fileOf(op).stack, "evidence", evidence)
	}
	return v.known(id, op.Dir, op).lie.Load()
}

// lieFix is what to do about a device that lies.
func lieFix(id route.ID) string {
	switch id {
	case route.NVMe:
		return "use another drive, slot or transport; culvert nvme list has drives"
	case route.RDMA:
		return "use another adapter or provider; culvert check lists NICs"
	}
	return "use another drive, driver or file system; culvert check draws the block stack"
}
