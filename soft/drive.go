package soft

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/culvert-io/culvert/soft/block"
	"github.com/culvert-io/culvert/soft/nvme"
)

// A Drive describes an NVMe drive of a machine. Its bytes are in Namespaces, in
// File, or in Size bytes of memory.
type Drive struct {
	nvme.Config
	File *os.File // becomes namespace 1; may be closed when the drive is added
	Size int64
	GPU  int // whose switch the drive is below; -1 for a root port of its own
}

// firstSize is that of the drive behind /dev/libnvm0, if no other was added before.
const firstSize = 64 << 20

// firstDrive plugs in the drive of a machine that has none, when /dev/libnvm0 is opened.
func (m *Machine) firstDrive() error {
	_, err := m.AddDrive(Drive{Size: firstSize})
	return err
}

// AddDrive plugs a drive in. libnvm, unless it is not loaded, adds a device node for
// it: /dev/libnvm0 for the first. If that is opened before, it gets a drive of 64 MiB in
// memory.
func (m *Machine) AddDrive(d Drive) (*nvme.Controller, error) {
	c, err := m.addDrive(d)
	if err != nil {
		return nil, fmt.Errorf("software machine: add NVMe drive: %w", err)
	}
	return c, nil
}

func (m *Machine) addDrive(d Drive) (*nvme.Controller, error) {
	disk, err := d.disk()
	if err != nil {
		return nil, err
	}
	if disk != nil {
		m.onClose(disk.Close)
		d.Namespaces = append(d.Namespaces, nvme.Namespace{Medium: disk})
	}
	fn, err := m.topology.Plug(d.GPU)
	if err != nil {
		return nil, err
	}
	d.Heap = d.Heap || m.cfg.Heap
	c, err := nvme.New(fn, d.Config)
	if err != nil {
		return nil, err
	}
	m.onClose(c.Close)
	c.Lie(m.cfg.Liar)
	m.mu.Lock()
	m.drives = append(m.drives, c)
	m.mu.Unlock()
	if m.libnvm != nil {
		return c, m.libnvm.Bind(c)
	}
	return c, nil
}

// disk returns the bytes of a drive, nil if Namespaces has them.
func (d *Drive) disk() (*block.File, error) {
	switch {
	case d.File != nil && d.Size != 0:
		return nil, errors.New("drive: File and Size exclude each other")
	case d.File != nil:
		return block.Adopt(d.File)
	case d.Size != 0:
		return block.NewMemory(d.Size)
	}
	return nil, nil
}

// Lie has all drives of the machine lie from now on; nil ends it.
func (m *Machine) Lie(l *nvme.Liar) {
	if m.storage != nil {
		m.storage.Lie(l)
		m.remote.Lie(l)
	}
	for _, d := range m.Drives() {
		d.Lie(l)
	}
}

// FailNext has the drive under nvidia-fs report an unrecovered media error for its next
// command, and then calls hit; nil ends it. It returns false before nvidia-fs has used the drive.
func (m *Machine) FailNext(hit func()) bool {
	return m.storage != nil && m.storage.FailNext(hit)
}

// Drives returns the machine's drives in the order in which they were added.
func (m *Machine) Drives() []*nvme.Controller {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.drives)
}

// HostBytes returns how many bytes of the drives' data have moved from and to host
// memory: all DMA there, less queues and PRP lists.
func (m *Machine) HostBytes() uint64 {
	t := m.Fabric().HostTraffic()
	n := t.Read + t.Written
	for _, d := range m.Drives() {
		s := d.Stats()
		n -= s.Fetched + s.Listed + s.Posted
	}
	return n
}

// Transport returns a connection to drive i for an NVMe driver in this process. It
// maps host memory and GPU memory.
func (m *Machine) Transport(i int) *nvme.Transport { return m.Drives()[i].Transport(m.p2p, nil) }
