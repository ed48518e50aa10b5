package tensor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/culvert-io/culvert/internal/object"
)

const (
	// tensorAlign is the alignment of a tensor on the device: that of cuMemAlloc,
	// which suits vector loads and copy engines.
	tensorAlign = 256

	defaultMaxRead = 64 << 20
	// pageSize is the unit of direct I/O: file offset and device address must agree
	// modulo it.
	pageSize = 4096
	// Up to maxGap unwanted bytes between two tensors are read to save a read, but
	// at most 1 in maxOverRead of a read.
	maxGap      = 64 << 10
	maxOverRead = 64
	// maxRejected is how many tensors that cannot be cut an error lists.
	maxRejected = 5
)

// PlanOptions refine a plan. The zero value is the default.
type PlanOptions struct {
	// ByLayer reads embeddings, layer 0, layer 1, ... in this order, so that the
	// first layers are ready early. Otherwise reads follow the order of the file,
	// and are fewer and larger.
	ByLayer bool
	// PerTensor allocates memory for each tensor, so that each can be freed by
	// itself. Otherwise all tensors of a device share one allocation.
	PerTensor bool
	// Apart lets each GPU read all that it gets. Otherwise what several get is read by
	// one of them and copied to the others.
	Apart bool
	// MaxRead limits a single read, so that tensors become ready while others are
	// in flight. 0 is 64 MiB.
	MaxRead int64
}

// A Plan says which bytes of which files go where. Every byte goes to its final
// address.
type Plan struct {
	Model   string   `json:"model"`
	Files   []string `json:"files"`
	Of      int      `json:"of_tensors"` // in the model
	Align   uint64   `json:"align"`
	Buffers []Buffer `json:"buffers"`
	Tensors []Placed `json:"tensors"`
	Reads   []Read   `json:"reads"`
	Copies  []Copy   `json:"copies,omitempty"`

	early bool // the reads are in the order in which tensors are needed
	files []*File
}

// A Buffer is an allocation that the plan needs.
type Buffer struct {
	Device int    `json:"device"`
	Size   uint64 `json:"bytes"`
}

// A Placed tensor has an address on a device.
type Placed struct {
	Name   string  `json:"name"`
	Dtype  Dtype   `json:"dtype"`
	Shape  []int64 `json:"shape"`
	Whole  []int64 `json:"of_shape,omitempty"` // the shape in the file, if only a part is loaded
	Cuts   []Cut   `json:"cuts,omitempty"`
	File   int     `json:"file"`
	Buffer int     `json:"buffer"`
	Off    uint64  `json:"offset"` // in the buffer
	Len    uint64  `json:"bytes"`

	layer int
}

// A Read moves Count runs of Len bytes into a buffer. Run i comes from
// Off + i*Stride of the file and goes to Dst + i*Len of the buffer.
type Read struct {
	File   int    `json:"file"`
	Off    int64  `json:"offset"`
	Len    int64  `json:"bytes"`
	Count  int64  `json:"count"`
	Stride int64  `json:"stride,omitempty"`
	Buffer int    `json:"buffer"`
	Dst    uint64 `json:"to"`
	// First and Last are the tensors that it touches, in Plan.Tensors.
	First int `json:"first"`
	Last  int `json:"last"`
}

// Size returns the number of bytes that the read moves.
func (r *Read) Size() int64 { return r.Len * r.Count }

// NewPlan plans the load of a part of a model to each of some GPUs. opts may be
// nil.
func NewPlan(m *Model, parts []Selection, opts *PlanOptions) (*Plan, error) {
	p, o, err := newPlan(m, opts)
	if err != nil {
		return nil, err
	}
	names := examine(m.Tensors)
	chosen := make([][]item, len(parts))
	for i := range parts {
		if chosen[i], err = parts[i].choose(m, names); err == nil {
			continue
		}
		if len(parts) > 1 { // a single one may stand for host memory
			err = fmt.Errorf("gpu:%d: %w", parts[i].Device, err)
		}
		return nil, err
	}
	if !o.Apart {
		shareReads(chosen)
	}
	for i := range parts {
		l := &layout{plan: p, opts: o, device: parts[i].Device}
		l.place(chosen[i])
	}
	p.Copies = copiesOf(chosen)
	return p, nil
}

// PlanSlice plans the load of a box of one tensor into an allocation of its own: for
// each dimension a range and a step, of which 0 is 1. nil is all of the tensor. opts
// may be nil.
func (m *Model) PlanSlice(info Info, ranges [][3]int64, device int, opts *PlanOptions) (*Plan, error) {
	p, o, err := newPlan(m, opts)
	if err != nil {
		return nil, err
	}
	if ranges != nil && len(ranges) != len(info.Shape) {
		return nil, fmt.Errorf("tensor %q has %d dimensions, the slice %d", info.Name, len(info.Shape), len(ranges))
	}
	it := item{info: info}
	for i, r := range ranges {
		if step := cmp.Or(r[2], 1); !(axis{info.Shape[i], r[0], r[1], step}).whole() {
			it.cuts = append(it.cuts, Cut{Dim: i, From: r[0], To: r[1], Step: step})
		}
	}
	if it.reg, err = cutRegion(info, it.cuts); err != nil {
		return nil, err
	}
	l := &layout{plan: p, opts: o, device: device}
	l.opts.PerTensor = true
	l.place([]item{it})
	return p, nil
}

// newPlan returns a plan that reads nothing, and checked options.
func newPlan(m *Model, opts *PlanOptions) (*Plan, PlanOptions, error) {
	var o PlanOptions
	if opts != nil {
		o = *opts
	}
	if o.MaxRead = cmp.Or(o.MaxRead, defaultMaxRead); o.MaxRead < pageSize {
		return nil, o, fmt.Errorf("largest read of %d bytes must be at least %d", o.MaxRead, pageSize)
	}
	p := &Plan{Model: m.Path, Of: len(m.Tensors), Align: tensorAlign, early: o.ByLayer, files: m.Files}
	for _, f := range m.Files {
		p.Files = append(p.Files, f.Path)
	}
	return p, o, nil
}

// Blocks returns how many of the plan's bytes a drive can move in blocks of this
// size, and how many are where file offset and device address agree modulo it. all
// is the number of bytes.
func (p *Plan) Blocks(size int64) (whole, inPhase, all int64) {
	for _, r := range p.Reads {
		all += r.Size()
		for i := range r.Count {
			off, dst := r.Off+i*r.Stride, int64(r.Dst)+i*r.Len
			if off%size != dst%size {
				continue
			}
			inPhase += r.Len
			whole += max((off+r.Len)/size*size-(off+size-1)/size*size, 0)
		}
	}
	return whole, inPhase, all
}

// check returns ErrChanged unless file i is still the one that was planned for. A
// caller opens the file first.
func (p *Plan) check(i int) error {
	if i >= len(p.files) {
		return nil // a plan made by a test
	}
	return p.files[i].check()
}

// sums returns the checksums of the tensors of file i.
func (p *Plan) sums(i int) (map[string]Sum, error) {
	var st fs.FileInfo
	if i < len(p.files) {
		st = p.files[i].stat
	}
	m, err := manifestFor(p.Files[i], st)
	// A save may have replaced both since.
	if changed := p.check(i); changed != nil {
		return nil, changed
	}
	if err != nil {
		return nil, err
	}
	return m.tensorSums(), nil
}

// An item is a tensor, or a part of one, that goes to a device.
type item struct {
	info  Info
	cuts  []Cut
	reg   region
	layer int

	shared *sharedItem // if several GPUs get it
	copied bool        // from another GPU, not read
	placed int         // its number in Plan.Tensors
}

// off returns where the item starts in its file.
func (it *item) off() int64 { return it.info.Off + it.reg.planes[0] }

// choose returns what the selection takes of a model.
func (s *Selection) choose(m *Model, names layerNames) ([]item, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	wanted, err := AnyOf(s.Only)
	if err != nil {
		return nil, err
	}
	rules, err := parseRules(s.Rules)
	if err != nil {
		return nil, err
	}
	rules = append(rules, megatronRules()...)
	var items []item
	var errs []error
	for _, info := range m.Tensors {
		if !wanted(info.Name) || !s.wantsLayer(names, info.Name) {
			continue
		}
		it := item{info: info, layer: turnOf(info.Name)}
		want, expert := s.wantsExpert(names, info)
		if !want {
			continue
		}
		slice, err := split(rules, s.Tensor, info)
		for _, c := range []*Cut{expert, slice} {
			if c != nil {
				it.cuts = append(it.cuts, *c)
			}
		}
		if err == nil {
			it.reg, err = cutRegion(info, it.cuts)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		items = append(items, it)
	}
	if more := len(errs) - maxRejected; more > 0 {
		errs = append(errs[:maxRejected], fmt.Errorf("and %d more tensors", more))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if len(items) == 0 {
		return nil, fmt.Errorf("no tensor of %s is selected", object.Redact(m.Path))
	}
	return items, nil
}

// Totals are the sums over a plan.
type Totals struct {
	Wanted int64 // bytes of tensors, for each device that has them
	Read   int64 // bytes
	Copied int64 // bytes, from one GPU to another
	Device int64 // bytes allocated
	Reads  int
	Runs   int64
}

// Totals returns the sums over the plan.
func (p *Plan) Totals() (t Totals) {
	for i := range p.Tensors {
		t.Wanted += int64(p.Tensors[i].Len)
	}
	for i := range p.Reads {
		t.Read += p.Reads[i].Size()
		t.Runs += p.Reads[i].Count
	}
	for _, c := range p.Copies {
		t.Copied += int64(p.Tensors[c.To].Len)
	}
	for _, b := range p.Buffers {
		t.Device += int64(b.Size)
	}
	t.Reads = len(p.Reads)
	return t
}

// Devices returns the GPUs that the plan loads to, in order.
func (p *Plan) Devices() (devices []int) {
	for _, b := range p.Buffers {
		devices = append(devices, b.Device)
	}
	slices.Sort(devices)
	return slices.Compact(devices)
}
