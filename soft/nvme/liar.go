package nvme

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/internal/enum"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A Lie is what a drive does with a transfer that it completes as a success.
type Lie uint8

// The lies.
const (
	// Drop moves nothing: memory, or in a write the medium, keeps its bytes.
	Drop Lie = iota
	// Misdirect moves each block to its neighbour's place; of a single block it moves
	// the next one of the medium, or in a write nothing.
	Misdirect
	// Delay completes a read before its bytes arrive, with the drive's next transfer.
	// A write that comes too late is as good as dropped.
	Delay
	// Duplicate moves the first block again and again; of a single block it moves the
	// one before it, or in a write nothing.
	Duplicate
	// Transform changes every byte.
	Transform
	numLies
)

var lieNames = [numLies]string{"drop", "misdirect", "delay", "duplicate", "transform"}

func (l Lie) String() string { return enum.Name(lieNames[:], l, "lie %d") }

// A Liar decides which transfers of drives are lies. The decisions depend only on the
// seed and on the order of the transfers. It is safe for concurrent use.
type Liar struct {
	OneIn uint64 // a lie per so many transfers; 0 means that none is
	Seed  uint64
	Lies  []Lie // all, if empty
	// Blocks is how many blocks of a transfer are wrong, at a place that the seed
	// decides; 0 means all.
	Blocks int
	// Peer restricts the lies to transfers with memory of other devices: what goes to host
	// memory is right.
	Peer bool
	// Most is how many lies there are at most; 0 means any number.
	Most uint64
	// Notify, if not nil, is called for each lie.
	Notify func()

	asked, told atomic.Uint64
}

// ParseLiar parses "transform+drop:100", "any:100" or "drop:100:1": lies, transfers per
// lie, and wrong blocks of a transfer.
func ParseLiar(text string, seed uint64) (*Liar, error) {
	parts := strings.Split(text, ":")
	l := &Liar{OneIn: 1, Seed: seed}
	if parts[0] != "any" {
		for _, name := range strings.Split(parts[0], "+") {
			i := slices.Index(lieNames[:], name)
			if i < 0 {
				return nil, fmt.Errorf("unknown lie %q (lies: any, %s)", name, strings.Join(lieNames[:], ", "))
			}
			l.Lies = append(l.Lies, Lie(i))
		}
	}
	var err error
	if len(parts) > 1 {
		if l.OneIn, err = strconv.ParseUint(parts[1], 10, 32); err != nil || l.OneIn == 0 {
			return nil, fmt.Errorf("%q must be the number of transfers per lie", parts[1])
		}
	}
	if len(parts) > 2 {
		if l.Blocks, err = strconv.Atoi(parts[2]); err != nil || l.Blocks < 1 {
			return nil, fmt.Errorf("%q must be the number of wrong blocks", parts[2])
		}
	}
	if len(parts) > 3 {
		return nil, fmt.Errorf("%q has more than three parts (LIES:TRANSFERS:BLOCKS)", text)
	}
	return l, nil
}

// Told returns how many lies there were.
func (l *Liar) Told() uint64 { return l.told.Load() }

// pick decides about the next transfer, with memory of another device or of the host. dice
// is random, for the details of the lie.
func (l *Liar) pick(peer bool) (lie Lie, dice uint64, ok bool) {
	if l == nil || l.OneIn == 0 || l.Peer && !peer {
		return 0, 0, false
	}
	dice = mix(l.Seed, l.asked.Add(1))
	if dice%l.OneIn != 0 {
		return 0, 0, false
	}
	if n := l.told.Add(1); l.Most > 0 && n > l.Most {
		l.told.Add(^uint64(0))
		return 0, 0, false
	}
	if l.Notify != nil {
		l.Notify()
	}
	dice = mix(dice, 0)
	if len(l.Lies) == 0 {
		return Lie(dice % uint64(numLies)), dice >> 8, true
	}
	return l.Lies[dice%uint64(len(l.Lies))], dice >> 8, true
}

// Next decides about the next transfer of a drive that is no Controller: bytes [from, to) of
// its n are a lie. A nil Liar tells the truth.
func (l *Liar) Next(n, block int) (lie Lie, from, to int, ok bool) {
	lie, dice, ok := l.pick(true)
	if !ok {
		return 0, 0, 0, false
	}
	at := l.wrong(n, block, dice)
	return lie, at.from, at.to, true
}

// Falsify makes of true bytes what a lie delivers that moves any: Misdirect, Duplicate or
// Transform.
func Falsify(lie Lie, b []byte, block int) {
	falsify(lie, b, b, block, func([]byte) bool { return false })
}

// mix is a step of the generator SplitMix64.
func mix(seed, n uint64) uint64 {
	x := seed + n*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Lie has the drive lie from now on; nil ends it.
func (c *Controller) Lie(l *Liar) {
	c.late.deliver(c)
	c.liar.Store(l)
}

// A span is a part of a transfer, in bytes.
type span struct{ from, to int }

// wrong chooses the blocks of a transfer that a lie is about.
func (l *Liar) wrong(n, block int, dice uint64) span {
	count := n / block
	if l.Blocks == 0 || l.Blocks >= count {
		return span{0, n}
	}
	first := int(dice % uint64(count-l.Blocks+1))
	return span{first * block, (first + l.Blocks) * block}
}

// tell performs a transfer as a lie.
func (w *worker) tell(l *Liar, lie Lie, dice uint64, ns *namespace, segs [][]byte, off int64, n int, op Op) abi.Status {
	// Direct I/O needs aligned memory: the true bytes, and what a lie makes of them.
	mem, err := unix.Mmap(-1, 0, 2*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return abi.INTERNAL_ERROR
	}
	defer unix.Munmap(mem)
	truth, before := mem[:n:n], mem[n:]
	block := 1 << ns.shift
	at := l.wrong(n, block, dice)
	if op == Write {
		gather(truth, segs)
		_, _ = ns.ReadV([][]byte{before}, off) // zeros, if the medium cannot be read
		falsify(lie, truth[at.from:at.to], before[at.from:at.to], block, nil)
		return w.move(ns, [][]byte{truth}, off, n, Write)
	}
	if s := w.move(ns, [][]byte{truth}, off, n, Read); s != abi.SUCCESS {
		return s
	}
	gather(before, segs)
	if lie == Delay {
		w.c.late.keep(w.ranges, truth, at)
	}
	falsify(lie, truth[at.from:at.to], before[at.from:at.to], block, func(b []byte) bool {
		next := off + int64(at.to)
		if lie == Duplicate {
			next = off + int64(at.from-block)
		}
		k, err := ns.ReadV([][]byte{b}, max(next, 0))
		return err == nil && k > 0
	})
	scatter(segs, truth)
	return abi.SUCCESS
}

// falsify makes of the true bytes what a lie delivers. before is what lay at the
// destination, and other fills a block with bytes from another place of the medium.
func falsify(lie Lie, b, before []byte, block int, other func([]byte) bool) {
	single := len(b) <= block
	switch {
	case lie == Drop || lie == Delay, single && other == nil && lie != Transform:
		copy(b, before)
	case lie == Transform:
		for i := range b {
			b[i] ^= 0xa5
		}
	case single:
		if !other(b) {
			copy(b, before)
		}
	case lie == Misdirect:
		first := slices.Clone(b[:block])
		copy(b, b[block:])
		copy(b[len(b)-block:], first)
	case lie == Duplicate:
		for i := block; i < len(b); i += block {
			copy(b[i:], b[:block])
		}
	}
}

// gather copies the segments into b.
func gather(b []byte, segs [][]byte) {
	for _, s := range segs {
		b = b[copy(b, s):]
	}
}

// scatter copies b into the segments.
func scatter(segs [][]byte, b []byte) {
	for _, s := range segs {
		b = b[copy(s, b):]
	}
}

// late has the bytes of a delayed read.
type late struct {
	mu     sync.Mutex
	ranges []pcie.Range
	bytes  []byte
	at     span
}

func (d *late) keep(ranges []pcie.Range, truth []byte, at span) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ranges, d.bytes, d.at = slices.Clone(ranges), slices.Clone(truth), at
}

// deliver moves the bytes to their place, if the memory is still there.
func (d *late) deliver(c *Controller) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bytes == nil {
		return
	}
	if access, err := c.fn.AcquireAll(d.ranges, pcie.Write); err == nil {
		now := make([]byte, len(d.bytes))
		gather(now, access.Segs())
		copy(now[d.at.from:d.at.to], d.bytes[d.at.from:d.at.to])
		scatter(access.Segs(), now)
		_ = access.Release(len(now)) // too late for a report
	}
	d.bytes, d.ranges = nil, nil
}
