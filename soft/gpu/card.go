package gpu

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// A GPU is a card: its memory, as other devices and kernel modules see it.
type GPU struct {
	drv    *Driver
	index  int
	model  Model
	info   gpu.Info
	arena  *arena
	window *window

	attributes map[gpu.Attribute]int

	// Guarded by Driver.mu.
	frames *frames

	// Guarded by Driver.ctxMu.
	primary *context
	lost    *refusal // of all later calls, by an error of a kernel; no context survives it
}

func newGPU(d *Driver, i int, m Model) (*GPU, error) {
	m.Memory = memoryOf(m)
	if d.cfg.Peer != "" {
		free, err := peerFree(d.cfg.Peer)
		if err != nil {
			return nil, fmt.Errorf("software GPU %d: %w", i, err)
		}
		m.Memory = min(m.Memory, free) &^ (blockSize - 1)
	}
	n := m.Memory / FrameSize
	g := &GPU{
		drv: d, index: i, model: m, attributes: allAttributes(m, i),
		frames: newFrames(n, d.cfg.Scatter, d.cfg.Seed+uint64(i)),
		info: gpu.Info{
			Index: i, Name: m.Name, Memory: m.Memory, Capability: m.Capability, Multiprocs: m.Multiprocs,
			UUID: uuid(d.cfg.Seed, i), PCI: fmt.Sprintf("0000:%02x:00.0", pciBus(i)),
			UnifiedAddrs: m.Attributes[abi.AttrUnifiedAddressing] == 1,
		},
	}
	var err error
	if d.cards != nil {
		g.arena = sharedArena(d.cards.Card(i), d.cfg)
		g.frames.share(d.cards, i)
	} else if g.arena, err = newArena(i, m.Memory, d.cfg); err != nil {
		return nil, fmt.Errorf("software GPU %d: %d bytes of memory: %w", i, m.Memory, err)
	}
	if g.window, err = newWindow(m.Memory); err != nil {
		return nil, fmt.Errorf("software GPU %d: %w", i, closeAfter(g.arena, err))
	}
	return g, nil
}

// memoryOf returns the size of a card's memory, whole blocks.
func memoryOf(m Model) uint64 { return cmp.Or(m.Memory, DefaultMemory) &^ (blockSize - 1) }

// pciBus spreads the cards over the bus numbers as switches would.
func pciBus(i int) int { return 0x0f + 0x0f*i }

func uuid(seed uint64, i int) (u gpu.UUID) {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	binary.LittleEndian.PutUint64(b[8:], uint64(i))
	sum := sha256.Sum256(b[:])
	copy(u[:], sum[:])
	return u
}

func (g *GPU) close() error { return errors.Join(g.window.close(), g.arena.Close()) }

// Index returns the card's number in its driver.
func (g *GPU) Index() int { return g.index }

// Model returns what the card was made from.
func (g *GPU) Model() Model { return g.model }

// Info returns a description of the card.
func (g *GPU) Info() gpu.Info { return g.info }

// allAttributes returns the attributes of the model and those that follow from its other
// fields.
func allAttributes(m Model, index int) map[gpu.Attribute]int {
	all := map[gpu.Attribute]int{}
	maps.Copy(all, m.Attributes)
	maps.Copy(all, map[gpu.Attribute]int{
		abi.AttrMultiprocessors: m.Multiprocs,
		abi.AttrCapabilityMajor: m.Capability[0],
		abi.AttrCapabilityMinor: m.Capability[1],
		abi.AttrPCIBusID:        pciBus(index),
		abi.AttrPCIDeviceID:     0,
		abi.AttrPCIDomainID:     0,
	})
	return all
}

// has reports whether a boolean attribute is set.
func (g *GPU) has(a gpu.Attribute) bool { return g.attributes[a] == 1 }

// freeBytes returns the size of the memory that can be allocated. Call with Driver.mu held.
func (g *GPU) freeBytes() uint64 {
	g.drv.sweep()
	g.frames.reap()
	return g.frames.available() * FrameSize
}

// shortage says why newBlock returned nil. Call with Driver.mu held.
func (g *GPU) shortage(size uint64) string {
	if why := g.drv.commitment.why; why != "" {
		return why
	}
	return fmt.Sprintf("%d bytes free, %d asked for", g.freeBytes(), size)
}

// newBlock allocates memory of the card, or returns nil. Call with Driver.mu held.
func (g *GPU) newBlock(size uint64) *block {
	n := size / FrameSize
	if g.frames.available() < n && g.freeBytes() < size {
		g.drv.commitment.why = ""
		return nil
	}
	frames := g.frames.take(n)
	if frames == nil { // another process was faster
		g.drv.commitment.why = ""
		return nil
	}
	if !g.drv.commitment.commit(g.arena, frames) {
		g.frames.give(frames)
		return nil
	}
	return g.blockOf(frames)
}

// blockOf returns a block of frames that are this process's. Call with Driver.mu held.
func (g *GPU) blockOf(frames []uint64) *block {
	g.drv.gen++
	return &block{
		card: g, gen: g.drv.gen, size: uint64(len(frames)) * FrameSize, frames: frames, runs: g.runs(frames), foreign: g.arena.peer,
	}
}

// runs joins frames that are neighbours in memory.
func (g *GPU) runs(frames []uint64) []run {
	var runs []run
	for i, n := 0, len(frames); i < n; {
		k := 1
		for i+k < n && frames[i+k] == frames[i+k-1]+1 && g.arena.joins(frames[i+k-1]) {
			k++
		}
		runs = append(runs, run{uint64(i) * FrameSize, g.arena.bytes(frames[i], uint64(k))})
		i += k
	}
	return runs
}
