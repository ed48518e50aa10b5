package rdma

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
)

// attrWritesOrdering, GPU_DIRECT_RDMA_WRITES_ORDERING, says how a GPU's own reads are
// ordered with writes of other devices.
const attrWritesOrdering gpu.Attribute = 118

// orderedForOwner is the least value of the attribute with which the GPU itself sees
// all of them.
const orderedForOwner = 100

// GPUOptions are the choices of RegisterGPU.
type GPUOptions struct {
	// Methods are what may be used, in order; nil means [DirectMethods]. Staging has to be
	// named: it moves the bytes through host memory.
	Methods []Method
	// Refuse are methods that must not be used, whatever Methods says. They are reported like
	// methods that do not work, with [ErrRefused].
	Refuse []Method
	// Evidence is why they are in this order, if that was measured.
	Evidence string
	// Facts, if not nil, is asked for what is known about the machine when a method fails.
	Facts func(Facts) Facts
}

// DirectMethods are the methods that move no bytes through host memory, in the order that
// holds until culvert tune has measured.
func DirectMethods() []Method { return []Method{PeerMemory, ViaPCIeDMABuf, ViaDMABuf} }

// A Refusal is why a method was not used.
type Refusal struct {
	Method     Method
	Err        error
	Cause, Fix string
}

func (r Refusal) String() string {
	return fmt.Sprintf("%s: %v: %s (fix: %s)", r.Method, r.Err, r.Cause, r.Fix)
}

// A GPURegion is GPU memory that peers can reach.
type GPURegion struct {
	MR
	Method   Method
	Refused  []Refusal // methods that were tried before
	Evidence string    // why they were tried in this order

	dev   gpu.Device
	at    gpu.Addr
	stage gpu.Addr // pinned memory; 0 unless the method is Staging
	flush bool
}

// Report is the method, why it was tried when it was, and why not those before it.
func (r *GPURegion) Report() string {
	text := fmt.Sprintf("%s, %s", r.Method, r.Evidence)
	for _, x := range r.Refused {
		text += fmt.Sprintf("; not %s: %s", x.Method, x.Cause)
	}
	return text
}

// RegisterGPU registers GPU memory by the first method that works, and says which and why
// not the others. The error of no method names the cause and fix of each.
func RegisterGPU(pd PD, dev gpu.Device, a gpu.Addr, n uint64, access Access, o GPUOptions) (*GPURegion, error) {
	methods := o.Methods
	if methods == nil {
		methods = DirectMethods()
	}
	r := &GPURegion{dev: dev, at: a, flush: needsFlush(dev), Evidence: cmp.Or(o.Evidence, builtIn)}
	managed := isManaged(dev, a)
	for _, m := range methods {
		err := errManaged
		switch {
		case slices.Contains(o.Refuse, m):
			err = ErrRefused
		case !managed || m == Staging:
			err = r.try(pd, m, n, access)
		}
		if err == nil {
			r.Method = m
			return r, nil
		}
		r.Refused = append(r.Refused, refusal(dev, a, n, m, err, o.Facts))
	}
	return nil, noMethod(a, n, r.Refused)
}

// builtIn is the evidence of an order without a measurement.
const builtIn = "built-in order"

// errManaged is never the adapter's: on many machines it would register the host's copy of
// managed memory, and peers would not see what the GPU has.
var errManaged = fmt.Errorf("managed memory is not registered: %w", syscall.EOPNOTSUPP)

// ErrRefused is a method that the caller does not allow.
var ErrRefused = errors.New("refused by the caller")

func isManaged(dev gpu.Device, a gpu.Addr) bool {
	p, err := dev.Pointer(a)
	return err == nil && p.Kind == gpu.KindManaged
}

func needsFlush(dev gpu.Device) bool {
	v, err := dev.Attribute(attrWritesOrdering)
	return err != nil || v < orderedForOwner
}

func refusal(dev gpu.Device, a gpu.Addr, n uint64, m Method, err error, known func(Facts) Facts) Refusal {
	if errors.Is(err, ErrRefused) {
		return Refusal{m, err, string(m) + " is refused by the caller", "do not refuse it"}
	}
	f := Facts{Method: m, Errno: Errno(err), Len: n}
	if re, ok := errors.AsType[*RegisterError](err); ok {
		f.Provider = re.Provider
	}
	if p, perr := dev.Pointer(a); perr == nil {
		f.Kind = p.Kind
	}
	if known != nil {
		f = known(f)
	}
	x := Refusal{Method: m, Err: err}
	x.Cause, x.Fix = Explain(f)
	return x
}

func noMethod(a gpu.Addr, n uint64, refused []Refusal) error {
	var why []string
	errs := []error{}
	for _, r := range refused {
		why = append(why, r.String())
		errs = append(errs, r.Err)
	}
	if !slices.ContainsFunc(refused, func(r Refusal) bool { return r.Method == Staging }) {
		why = append(why, string(Staging)+": not allowed by the caller")
	}
	return &GPUError{fmt.Sprintf("register %d bytes of GPU memory at %v: no method works: %s", n, a, strings.Join(why, "; ")), refused, errors.Join(errs...)}
}

// A GPUError is GPU memory that no method could register.
type GPUError struct {
	text    string
	Refused []Refusal
	err     error
}

func (e *GPUError) Error() string { return e.text }

// Unwrap has the errors of the methods.
func (e *GPUError) Unwrap() error { return e.err }

func (r *GPURegion) try(pd PD, m Method, n uint64, access Access) (err error) {
	switch m {
	case PeerMemory:
		// Copies of the owner must be complete before a peer reads.
		if err := r.dev.SetSyncMemops(r.at, true); err != nil {
			return err
		}
		r.MR, err = pd.Register(Address(r.at, n), access)
	case ViaDMABuf:
		err = r.export(pd, n, access, gpu.ExportDMABuf)
	case ViaPCIeDMABuf:
		err = r.export(pd, n, access, gpu.ExportDMABufPCIe)
	case Staging:
		err = r.allocStage(pd, n, access)
	default:
		err = fmt.Errorf("unknown method %q", m)
	}
	return err
}

// export exports the whole pages that contain the range.
func (r *GPURegion) export(pd PD, n uint64, access Access, as gpu.Export) error {
	first := r.at &^ (pageSize - 1)
	off := uint64(r.at - first)
	f, err := r.dev.Export(first, (off+n+pageSize-1)&^(pageSize-1), as)
	if err != nil {
		return err
	}
	r.MR, err = pd.Register(DMABuf(f, off, n, uint64(r.at)), access)
	return errors.Join(err, f.Close())
}

func (r *GPURegion) allocStage(pd PD, n uint64, access Access) error {
	a, err := r.dev.Alloc(gpu.KindHost, n, gpu.HostPortable)
	if err != nil {
		return err
	}
	if r.MR, err = pd.Register(Host(gpu.HostBytes(a, n)), access); err != nil {
		return errors.Join(err, r.dev.Free(a))
	}
	r.stage = a
	return nil
}

// Arrived makes bytes that a peer wrote visible to the GPU: call it after the completion
// that tells of them and before the GPU reads. It flushes writes if the GPU does not order
// them, and copies from the staging memory.
func (r *GPURegion) Arrived(off, n uint64) error {
	if r.stage != 0 {
		return r.dev.Copy(r.at+gpu.Addr(off), r.stage+gpu.Addr(off), n)
	}
	if r.flush {
		return r.dev.FlushWrites(gpu.ScopeOwner)
	}
	return nil
}

// Ready makes bytes that the GPU wrote visible to peers: call it before a peer reads them,
// or before they are sent. It copies to the staging memory.
func (r *GPURegion) Ready(off, n uint64) error {
	if r.stage != 0 {
		return r.dev.Copy(r.stage+gpu.Addr(off), r.at+gpu.Addr(off), n)
	}
	return nil
}

// HostBytes is how many bytes cross host memory for n bytes moved.
func (r *GPURegion) HostBytes(n uint64) uint64 {
	if r.stage != 0 {
		return n
	}
	return 0
}

// Close deregisters and frees the staging memory.
func (r *GPURegion) Close() error {
	err := r.MR.Close()
	if r.stage != 0 && err == nil {
		err = r.dev.Free(r.stage)
		r.stage = 0
	}
	return err
}
