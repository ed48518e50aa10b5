package check

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// A Path describes the routes between a file and a GPU.
type Path struct {
	File     string               `json:"file"`
	GPU      int                  `json:"gpu"`
	Facts    storage.Facts        `json:"facts"`
	Size     int64                `json:"size"`
	Resident *int64               `json:"page_cache_bytes,omitempty"` // nil if the kernel cannot tell
	Mount    *storage.Mount       `json:"mount,omitempty"`
	Device   *storage.BlockDevice `json:"block_device,omitempty"`
	Best     route.ID             `json:"best_route"`
	Uses     []route.Use          `json:"routes"`
	Usable   []route.ID           `json:"usable_routes"`
	Declined []*route.Decline     `json:"declined_routes"`

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

// LookPath finds the routes between the file at name and GPU i.
func LookPath(m *machine.Machine, drv *cufile.Driver, name string, i int) (*Path, error) {
	// Opening a pipe, which Adopt rejects, must not wait for its writer.
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
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
	if bd, err := storage.FindBlockDevice(dev.Of(m).FS(), st.Facts.Dev); err == nil {
		p.Device = &bd
	}
	return p, p.addRoutes(drv, f, i)
}

func (p *Path) addRoutes(drv *cufile.Driver, f *os.File, dev int) error {
	h, err := drv.Register(f)
	if err != nil {
		return err
	}
	defer h.Close()
	if p.plan, err = h.Plan(dev); err != nil {
		return err
	}
	p.Best, p.Uses = p.plan.Best(), p.plan.Taken()
	p.Usable, p.Declined = p.plan.Usable(), p.plan.Declined
	return nil
}
