package tensor

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/culvert-io/culvert/internal/human"
)

// An Order says which reads of a device come first.
type Order uint8

const (
	ByFile  Order = iota // as the bytes lie in the files: fewest and largest reads
	ByLayer              // embeddings, layer 0, layer 1, ...: the first layers are ready early
)

// An Allocation says how device memory is taken.
type Allocation uint8

const (
	PerDevice Allocation = iota // one allocation for all tensors of a device
	PerTensor                   // one for each, so that each can be freed by itself
)

// MinAlign is the least alignment of a tensor on the device: what cuMemAlloc
// promises, and what vector loads and copy engines like.
const MinAlign = 256

// maxAlign is far more than anybody wants, and far from where sums overflow.
const maxAlign = 1 << 30

// PlanOptions refine a plan. The zero value is the default.
type PlanOptions struct {
	Order Order
	Alloc Allocation
	// Align is the alignment of each tensor's address, a power of two up to 1 GiB.
	// What is less than MinAlign counts as MinAlign.
	Align uint64
	// MaxRead bounds a single read, so that tensors become ready while others
	// are still on their way. 0 is 64 MiB.
	MaxRead int64
}

const (
	defaultMaxRead = 64 << 20
	// pageSize is what direct I/O wants offsets and addresses to agree on.
	pageSize = 4096
	// maxGap is how many unwanted bytes between two tensors are worth one read
	// less, and maxOverRead bounds their share of a merged read: 1 in 64.
	maxGap      = 64 << 10
	maxOverRead = 64
	// maxRefused is how many tensors that cannot be cut are told one by one.
	maxRefused = 5
)

// A Plan says which bytes of which files go where. Every byte goes straight to
// the place where it stays.
type Plan struct {
	Model   string   `json:"model"`
	Files   []string `json:"files"`
	Of      int      `json:"of_tensors"` // how many the model has
	Align   uint64   `json:"align"`
	Buffers []Buffer `json:"buffers"`
	Tensors []Placed `json:"tensors"`
	Reads   []Read   `json:"reads"`

	early bool // the reads are in the order in which tensors are needed
	files []*File
}

// Check reports whether file i is still the one that was planned for. Who opens it
// to carry the plan out does so and then asks.
func (p *Plan) Check(i int) error {
	if i >= len(p.files) {
		return nil // it is of no model
	}
	return p.files[i].check()
}

// A Buffer is an allocation that the plan needs.
type Buffer struct {
	Device int    `json:"device"`
	Size   uint64 `json:"bytes"`
}

// A Placed tensor has its place on a device.
type Placed struct {
	Name   string  `json:"name"`
	Dtype  Dtype   `json:"dtype"`
	Shape  []int64 `json:"shape"`
	Whole  []int64 `json:"of_shape,omitempty"` // the shape in the file, where only a part is wanted
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

// Size is the number of bytes that the read moves.
func (r *Read) Size() int64 { return r.Len * r.Count }

// NewPlan plans the way of a model's tensors to the targets. opts may be nil.
func NewPlan(m *Model, targets []Target, opts *PlanOptions) (*Plan, error) {
	if opts == nil {
		opts = &PlanOptions{}
	}
	o := *opts
	o.Align = max(o.Align, MinAlign)
	if o.Align&(o.Align-1) != 0 || o.Align > maxAlign {
		return nil, fmt.Errorf("alignment %d is not a power of two up to %d", o.Align, maxAlign)
	}
	if o.MaxRead == 0 {
		o.MaxRead = defaultMaxRead
	}
	if o.MaxRead < pageSize {
		return nil, fmt.Errorf("reads of %d bytes: want %d at least", o.MaxRead, pageSize)
	}
	p := m.EmptyPlan()
	p.Align, p.early = o.Align, o.Order == ByLayer
	parts := examine(m.entries)
	for _, t := range targets {
		items, err := choose(m, parts, t.Selection)
		if err != nil {
			return nil, fmt.Errorf("gpu:%d: %w", t.Device, err)
		}
		l := &layout{plan: p, opts: o, device: t.Device}
		l.place(items)
	}
	return p, nil
}

// EmptyPlan is a plan that reads nothing, for who arranges reads of the model's
// files himself.
func (m *Model) EmptyPlan() *Plan {
	p := &Plan{Model: m.Path, Of: len(m.entries), Align: MinAlign, files: m.Files}
	for _, f := range m.Files {
		p.Files = append(p.Files, f.Path)
	}
	return p
}

// An item is a tensor, or a part of one, that a target wants.
type item struct {
	entry Entry
	cuts  []Cut
	reg   region
	layer int
}

// off is where the item starts in its file.
func (it *item) off() int64 { return it.entry.Off + it.reg.off }

// choose finds what a selection wants of a model.
func choose(m *Model, parts layerNames, sel Selection) ([]item, error) {
	if err := sel.check(); err != nil {
		return nil, err
	}
	wanted, err := AnyOf(sel.Only)
	if err != nil {
		return nil, err
	}
	rank, err := newSplitter(sel.Tensor, append(slices.Clone(sel.Rules), MegatronRules()...))
	if err != nil {
		return nil, err
	}
	var items []item
	var errs []error
	for _, e := range m.entries {
		if !wanted(e.Name) || !sel.wantsLayer(parts, e.Name) {
			continue
		}
		it := item{entry: e, layer: turnOf(e.Name)}
		want, cut := sel.wantsExpert(parts, e.Info)
		if !want {
			continue
		}
		if cut != nil {
			it.cuts = append(it.cuts, *cut)
		}
		cut, err := rank.cut(e.Info)
		if cut != nil {
			it.cuts = append(it.cuts, *cut)
		}
		if err == nil {
			it.reg, err = cutRegion(e.Info, it.cuts)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		items = append(items, it)
	}
	if more := len(errs) - maxRefused; more > 0 {
		errs = append(errs[:maxRefused], fmt.Errorf("and %d tensors more", more))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if len(items) == 0 {
		return nil, fmt.Errorf("no tensor of %s is selected", m.Path)
	}
	return items, nil
}

// Totals are the sums over a plan.
type Totals struct {
	Wanted int64 `json:"wanted_bytes"` // in tensors, for each device that has them
	Read   int64 `json:"read_bytes"`
	Device int64 `json:"device_bytes"` // allocated
	Reads  int   `json:"reads"`
	Runs   int64 `json:"runs"`
}

// Totals sums the plan up.
func (p *Plan) Totals() (t Totals) {
	for i := range p.Tensors {
		t.Wanted += int64(p.Tensors[i].Len)
	}
	for i := range p.Reads {
		t.Read += p.Reads[i].Size()
		t.Runs += p.Reads[i].Count
	}
	for _, b := range p.Buffers {
		t.Device += int64(b.Size)
	}
	t.Reads = len(p.Reads)
	return t
}

// Devices are the GPUs that the plan loads to, in order.
func (p *Plan) Devices() (devices []int) {
	for _, b := range p.Buffers {
		devices = append(devices, b.Device)
	}
	slices.Sort(devices)
	return slices.Compact(devices)
}

func (p *Plan) fileName(i int) string { return human.Name(filepath.Base(p.Files[i])) }

// sortReads puts the reads of one device, in file order so far, into layers.
func sortReads(reads []Read, tensors []Placed) {
	slices.SortStableFunc(reads, func(a, b Read) int {
		return cmp.Compare(tensors[a.First].layer, tensors[b.First].layer)
	})
}
