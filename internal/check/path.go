package check

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/blockstack"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// A Path describes the routes between a file and a GPU.
type Path struct {
	Model     string            `json:"model,omitempty"` // if it is one; File is the one of its files with the worst routes
	File      string            `json:"file"`
	Directory bool              `json:"directory,omitempty"` // File is a directory, and a new file in it was looked at
	GPU       int               `json:"gpu"`
	Facts     storage.Facts     `json:"facts"`
	Size      int64             `json:"size"`
	Resident  *int64            `json:"page_cache_bytes,omitempty"` // nil if the kernel cannot tell
	Mount     *storage.Mount    `json:"mount,omitempty"`
	Stack     *blockstack.Stack `json:"block_stack,omitempty"`
	Topology  *Topology         `json:"topology,omitempty"` // nil if sysfs does not show the devices
	Best      route.ID          `json:"best_route"`
	Uses      []route.Use       `json:"routes"`
	Usable    []route.ID        `json:"usable_routes"`
	Declined  []*route.Decline  `json:"declined_routes"`
	Verdict   Verdict           `json:"verdict"`
	// Pinned is the pinned-copy rate to the GPU; 0 if it was not measured.
	Pinned float64 `json:"pinned_copy_bytes_per_second,omitempty"`

	Measure string `json:"-"` // the command that measures this path; "" if there is none
	machine *machine.Machine
	plan    *route.Plan
}

// Require returns an error unless the best route is at least as good as id, on a
// machine on which routes can be required.
func (p *Path) Require(id route.ID) error {
	if err := p.machine.Require(id); err != nil {
		return err
	}
	return p.plan.Require(id)
}

// A Model is what a load of a model reads.
type Model struct {
	Path  string
	Files []string
	// Blocks returns how many bytes of the load a drive can move in blocks of this
	// size, and how many are where file offset and device address agree modulo it.
	Blocks func(size int64) (whole, inPhase, all int64)
}

// LookModel finds the routes that a load of a model takes: those of the file with
// the worst ones, as far as the model's tensors are aligned for them.
func LookModel(m *machine.Machine, drv *cufile.Driver, model Model, i int) (*Path, error) {
	var worst *Path
	for _, name := range model.Files {
		p, err := LookPath(m, drv, name, i)
		if err != nil {
			return nil, err
		}
		if worst == nil || p.Best > worst.Best {
			worst = p
		}
	}
	worst.Model = object.Redact(model.Path)
	worst.setPlan(alignedPlan(worst.plan, model))
	return worst, nil
}

// alignedPlan declines the routes that could not move most of a model because its
// tensors are not aligned.
func alignedPlan(p *route.Plan, model Model) *route.Plan {
	fit := &route.Plan{Declined: slices.Clone(p.Declined)}
	for _, u := range p.Uses {
		d := declineAlignment(u, model)
		if d == nil {
			fit.Uses = append(fit.Uses, u)
			continue
		}
		fit.Declined = append(fit.Declined, d)
	}
	slices.SortStableFunc(fit.Declined, func(a, b *route.Decline) int { return cmp.Compare(a.Route, b.Route) })
	return fit
}

func declineAlignment(u route.Use, model Model) *route.Decline {
	if u.Block <= 1 {
		return nil
	}
	whole, inPhase, all := model.Blocks(u.Block)
	switch {
	case whole*2 >= all:
		return nil
	case inPhase*2 >= all:
		return &route.Decline{
			Route: u.Route, Test: "alignment",
			Evidence: fmt.Sprintf("only %s of tensors, %s in all, are whole blocks of %s", human.Size(whole), human.Size(all), human.Size(u.Block)),
		}
	}
	return &route.Decline{
		Route: u.Route, Test: "alignment",
		Evidence: fmt.Sprintf("the offsets of %s of tensors, %s in all, are not aligned to %s", human.Size(all-inPhase), human.Size(all), human.Size(u.Block)),
		Fix:      fmt.Sprintf("save the model again: culvert save %s NEW.safetensors", object.Redact(model.Path)),
	}
}

// LookPath finds the routes between the file or the object at name and GPU i.
func LookPath(m *machine.Machine, drv *cufile.Driver, name string, i int) (*Path, error) {
	if object.IsURL(name) {
		return lookObject(m, drv, name, i)
	}
	// Opening a pipe, which Adopt rejects, must not wait for its writer.
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return lookFile(m, drv, f, name, i)
}

// LookDirectory finds the routes between the files of a directory and GPU i. It looks
// at an unnamed file that it makes there or, where it may not, at one that exists.
func LookDirectory(m *machine.Machine, drv *cufile.Driver, dir string, i int) (*Path, error) {
	f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600)
	if err != nil {
		name, found := firstFile(dir)
		if !found {
			return nil, fmt.Errorf("%s: no file can be made in it and it has none (%w): name a file", dir, err)
		}
		return LookPath(m, drv, name, i)
	}
	defer f.Close()
	p, err := lookFile(m, drv, f, dir, i)
	if err == nil {
		p.Directory = true
	}
	return p, err
}

func firstFile(dir string) (name string, found bool) {
	entries, _ := os.ReadDir(dir)
	at := slices.IndexFunc(entries, func(e os.DirEntry) bool { return e.Type().IsRegular() })
	if at < 0 {
		return "", false
	}
	return filepath.Join(dir, entries[at].Name()), true
}

func lookFile(m *machine.Machine, drv *cufile.Driver, f *os.File, name string, i int) (*Path, error) {
	st, err := storage.Adopt(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	defer st.Close()
	p := &Path{File: name, GPU: i, Facts: st.Facts, machine: m}
	if p.Size, err = st.Size(); err != nil {
		return nil, err
	}
	if n, err := st.Resident(0, p.Size); err == nil {
		p.Resident = &n
	}
	if mount, err := storage.FindMount(dev.Of(m).FS(), st.Facts.Dev); err == nil {
		p.Mount = &mount
	}
	if s, err := blockstack.Look(dev.Of(m), st.Facts); err == nil {
		p.Stack = s
	}
	p.Topology = topologyOf(m, p.Stack, i)
	h, err := drv.Register(f)
	if err != nil {
		return nil, err
	}
	return p, p.addRoutes(h, i)
}

// addRoutes adds the routes of a registered file, and closes it.
func (p *Path) addRoutes(h *cufile.File, dev int) error {
	defer h.Close()
	plan, err := h.Plan(dev)
	if err != nil {
		return err
	}
	p.setPlan(plan)
	return nil
}

func (p *Path) setPlan(plan *route.Plan) {
	p.plan = plan
	p.Best, p.Uses = plan.Best(), plan.Taken()
	p.Usable, p.Declined = plan.Usable(), plan.Declined
	p.Verdict = verdict(p.Uses, p.Size, p.Declined)
}
