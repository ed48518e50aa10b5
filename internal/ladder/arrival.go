package ladder

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// A prover checks that the bytes which a direct route reports have arrived. Between
// the file and the GPU are layers that nothing here controls: a driver may leave the
// bytes in host memory, an encrypting layer may never see them, a drive may write
// elsewhere, and each of them reports success. docs/direct.md has the method, its
// cost and the probability with which it finds a lie.
type prover struct {
	dev    gpu.Device
	gpu    gpu.UUID
	copies copier
	os     dev.OS
	log    *slog.Logger
	maps   []Route // of the ladder, those that map memory
	stacks *knownStacks
	files  sync.Map // from *storage.File or DirectSource to *provedFile
	pool   sync.Pool
	now    func() time.Time
	wait   func(time.Duration)
	trial  int    // transfers of a stack that are compared widely
	keep   uint64 // bytes that required writes overwrite at a time

	making  sync.Mutex // serialises prepareProofs
	memory  atomic.Pointer[proofMemory]
	proving sync.Mutex // held while the memory is in use

	mu     sync.Mutex
	flying []*samples // reads in flight
}

func newProver(device gpu.Device, os dev.OS, log *slog.Logger, routes []Route) *prover {
	v := &prover{dev: device, gpu: device.Info().UUID, copies: copier{dev: device}, os: os, log: log, stacks: stacksOf(os), now: time.Now, wait: time.Sleep, trial: trialTransfers, keep: keptBytes}
	for _, r := range routes {
		switch r.(type) {
		case *p2pdmaRoute, *barRoute:
			v.maps = append(v.maps, r)
		}
	}
	v.pool.New = func() any {
		var seed [32]byte
		rand.Read(seed[:])
		return newSamples(seed)
	}
	return v
}

var (
	errNotArrived = errors.New("bytes that were reported as moved did not arrive")
	errChanging   = errors.New("the file changed while it was read")
)

// run has a direct route move ops, and returns a RejectedError if what it reports is
// not so.
func (v *prover) run(ctx context.Context, r Route, t *Traits, ops []Op, res []route.Receipt) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch writes := countWrites(ops); {
	case writes == len(ops):
		return v.writeGroups(ctx, r, t, ops, res)
	case writes > 0:
		return v.runMixed(ctx, r, t, ops, res)
	}
	err := v.read(ctx, r, t, ops, res)
	for range settleTries {
		if !errors.Is(err, errChanging) || !ops[0].strict {
			break
		}
		// No other route may take it. The next attempt starts later than the change.
		v.wait(clockStep)
		clear(res)
		err = v.read(ctx, r, t, ops, res)
	}
	return err
}

func countWrites(ops []Op) (n int) {
	for i := range ops {
		if ops[i].Dir == route.Write {
			n++
		}
	}
	return n
}

const (
	// clockStep is more than the step in which file systems count time (up to 10 ms):
	// a file that was changed less before a read may have been changed during it.
	clockStep = 25 * time.Millisecond
	// settleTries is how often a read that may use no other route is repeated because
	// the file changes.
	settleTries = 4
)

// read moves ops to GPU memory and compares.
func (v *prover) read(ctx context.Context, r Route, t *Traits, ops []Op, res []route.Receipt) error {
	s := v.begin(r, t, ops)
	defer v.end(s)
	err := r.Run(ctx, ops, res)
	s.waitCold()
	for i := range ops {
		ops[i].sized = false // it is old now
	}
	for i := range s.reads {
		if w := s.reads[i].wide; w != nil {
			w.restore(&ops[i], res[i].Bytes)
		}
	}
	judged := 0
	for err == nil && judged < len(ops) {
		if err = v.judge(t, s, ops, res, judged); err == nil {
			judged++
		}
	}
	for i := judged; err != nil && i < len(ops); i++ {
		// Callers take what is counted for moved.
		if isRejected(err) || ctx.Err() != nil || !s.arrived(&ops[i], &res[i], i) {
			uncount(&res[i])
		}
	}
	return err
}

// arrived compares a read of a batch that has failed.
func (s *samples) arrived(op *Op, rec *route.Receipt, i int) bool {
	if rec.Bytes > int64(op.Mem.Len) {
		return false
	}
	found, level, err := s.compare(op, rec.Bytes, i)
	if found != nil || err != nil || level == route.ArrivalReported {
		return false
	}
	rec.Arrival = level
	return true
}

// uncount has a receipt say that nothing was moved.
func uncount(r *route.Receipt) {
	r.Bytes, r.Head, r.Tail, r.Holes, r.By, r.Host.Bytes = 0, 0, 0, 0, route.ByRoute{}, 0
}

// judge compares what op i was to read with what is there.
func (v *prover) judge(t *Traits, s *samples, ops []Op, res []route.Receipt, i int) error {
	op, rec := &ops[i], &res[i]
	if evidence := v.falseEnd(s, op, rec.Bytes, i); evidence != "" {
		if v.fileOf(op).host.changedAfter(s.begin.Add(-clockStep)) {
			return pass(ops, decline(t.ID, "file", evidence+" and has changed", ""))
		}
		return v.deny(t, ops, op, evidence)
	}
	if rec.Bytes == 0 {
		return nil
	}
	found, level, err := s.compare(op, rec.Bytes, i)
	if err != nil {
		return unproved(t, ops, i, err)
	}
	if found == nil {
		rec.Arrival = level
		if level == route.ArrivalProved {
			v.fileOf(op).reads[t.ID].Store(true)
			v.known(t.ID, op.Dir, op).proofs.Add(1)
		}
		return nil
	}
	if err := checkAllocated(ops[i:i+1], 0); err != nil {
		return err
	}
	if v.wasDisturbed(s) {
		return pass(ops, decline(t.ID, "memory", "another read used the same GPU memory at the same time", ""))
	}
	if v.changes(v.fileOf(op), found, s.begin) {
		return pass(ops, decline(t.ID, "file", fmt.Sprintf("%s changed while it was read at offset %d", op.Src.Name(), found.off), ""))
	}
	return v.deny(t, ops, op, found.String())
}

// unproved is the error of a batch of which op i could not be compared. The next route finds
// out whether the file or the GPU has failed. With the route required, a file that ends early
// is read again: it may have been truncated.
func unproved(t *Traits, ops []Op, i int, err error) error {
	if aerr := checkAllocated(ops[i:i+1], 0); aerr != nil {
		return aerr
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: %w", errChanging, err)
	}
	return toNextRoute(t.ID, ops, "proof", fmt.Errorf("no proof that the bytes arrived: %w", err))
}

// falseEnd says how a count of n bytes contradicts the size of the file or of the read; "" if
// it does not. Drives that end early were removed: Plan.Run finds them.
func (v *prover) falseEnd(s *samples, op *Op, n int64, i int) string {
	before := s.reads[i].size
	if n > int64(op.Mem.Len) {
		return fmt.Sprintf("%d bytes were reported for a read of %d", n, op.Mem.Len)
	}
	end, want := op.Off+n, min(op.end(), before)
	early := end < want && !(op.file() != nil && op.file().Facts.Block)
	if before < 0 || !early && (n == 0 || end <= want) {
		return ""
	}
	size, err := v.fileOf(op).host.size() // it may have been truncated or extended meanwhile
	switch {
	case err != nil:
	case early && end < size:
		return fmt.Sprintf("a read ended at offset %d of the file, which goes on to %d", end, size)
	case !early && end > size:
		return fmt.Sprintf("a read ended at offset %d of the file, which ends at %d", end, size)
	}
	return ""
}

// pass is the error of a batch that another route takes this time, or, if none may, the
// same one again.
func pass(ops []Op, d *route.Decline) error {
	passOn(ops, d)
	return &RejectedError{d, errChanging}
}

// maxStrikes is how many differences condemn a stack where one can be due to another
// process that writes: after a write, and in a source that does not tell when it changed.
const maxStrikes = 3

// deny is the error of an op that did not arrive.
func (v *prover) deny(t *Traits, ops []Op, op *Op, evidence string) error {
	k := v.known(t.ID, op.Dir, op)
	k.proofs.Store(0) // on trial again
	if op.Dir == route.Read && v.fileOf(op).host.dated() || k.strikes.Add(1) >= maxStrikes {
		return &RejectedError{v.condemn(t.ID, op, evidence), errNotArrived}
	}
	d := decline(t.ID, "arrival", evidence, "")
	passOn(ops, d)
	return &RejectedError{d, errNotArrived}
}

// passOn sends the ops of a batch to another route, this time only.
func passOn(ops []Op, d *route.Decline) {
	for i := range ops {
		ops[i].passed = append(ops[i].passed, d)
	}
}

// changes waits until it is known whether a file changed while it was read. A change
// that ended long before the read, and a file that has the same bytes before and
// twice after it, leave only a lie.
func (v *prover) changes(f *provedFile, found *mismatch, begin time.Time) bool {
	if f.host.changedAfter(begin.Add(-clockStep)) {
		return true
	}
	first, second := make([]byte, len(found.want)), make([]byte, len(found.want))
	if f.host.read(first, found.off) != nil {
		return true
	}
	v.wait(clockStep)
	if f.host.read(second, found.off) != nil || f.host.changedAfter(begin.Add(-clockStep)) {
		return true
	}
	return found.known && string(first) != string(found.want) || string(first) != string(second)
}

// changedAfter reports whether a file may have been changed after a time.
func changedAfter(f *storage.File, t time.Time) bool {
	var st unix.Stat_t
	if unix.Fstat(f.FD(), &st) != nil {
		return true
	}
	after := func(ts unix.Timespec) bool { return time.Unix(ts.Unix()).After(t) }
	return after(st.Mtim) || after(st.Ctim)
}
