package lab

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/culvert-io/culvert/lab/internal/job"
)

// A Guest describes a machine as data. The zero value is a machine with two
// processors, no drive and no network.
type Guest struct {
	CPUs   int  // 0 means 2
	Memory int  // in MiB; 0 means 768
	Nodes  int  // memory nodes, with equal parts of processors and memory; 0 means 1
	IOMMU  bool // an emulated VT-d in front of every device
	Drives []Drive
	NICs   int  // virtio network cards, for traffic of the guest with itself
	Verbs  bool // libibverbs is installed, for software RoCE
	// Perftest says that perftest's programs are installed.
	Perftest bool
	// Modules are kernel modules that the guest needs beside the usual, if the kernel has
	// modules at all.
	Modules []string
}

// A Drive is an NVMe drive.
type Drive struct {
	ID     string  // name in QEMU and serial number in the guest
	Size   int64   // in bytes; 0 means 1 GiB
	Sector int     // logical block size; 0 means 512
	CMB    int     // controller memory buffer in MiB: memory on the drive for peer-to-peer DMA
	Behind string  // "" the root bus, RootPort a hot-plug port of its own, otherwise the name of the switch above it
	Node   int     // memory node of its port, if the guest has several
	FS     string  // "ext4" or "xfs": made and mounted before the command runs; "" means a raw drive
	Remote bool    // the file system reaches it over RDMA: the kernel's NVMe host and target, on the first network card
	Faults []Fault // medium errors
	Rate   int64   // bytes per second that can be read; 0 means as fast as the host
	LogTo  string  // id of the drive that receives a record of all writes to this one (package crash)
}

// RootPort is the Drive.Behind of a drive in a hot-plug slot of its own.
const RootPort = "port"

// A Fault makes every access in one direction to one sector fail, like worn flash.
type Fault struct {
	Op     Op
	Sector int64 // in units of 512 bytes, whatever the drive's block size
}

// An Op is the direction of an access.
type Op string

// The directions.
const (
	Read  Op = "read"
	Write Op = "write"
)

// withDefaults returns a copy with defaults in place of zeros.
func (g Guest) withDefaults() Guest {
	g.CPUs = cmp.Or(g.CPUs, 2)
	g.Memory = cmp.Or(g.Memory, 768)
	g.Nodes = cmp.Or(g.Nodes, 1)
	g.Drives = slices.Clone(g.Drives)
	for i := range g.Drives {
		d := &g.Drives[i]
		d.Size = cmp.Or(d.Size, 1<<30)
		d.Sector = cmp.Or(d.Sector, 512)
	}
	return g
}

// idPattern excludes characters with a meaning in QEMU's option syntax.
var idPattern = regexp.MustCompile(`^[a-z][a-z0-9]{0,18}$`)

// Validate finds descriptions that QEMU or init would reject.
func (g Guest) Validate() error {
	g = g.withDefaults()
	if g.Nodes < 0 || g.CPUs%g.Nodes != 0 || g.Memory%g.Nodes != 0 {
		return fmt.Errorf("%d CPUs and %d MiB must be multiples of %d memory nodes", g.CPUs, g.Memory, g.Nodes)
	}
	seen := map[string]bool{}
	for _, d := range g.Drives {
		if l := d.LogTo; l != "" && (l == d.ID || !slices.ContainsFunc(g.Drives, func(o Drive) bool { return o.ID == l && o.LogTo == "" })) {
			return fmt.Errorf("drive %s: LogTo %q must be another drive without LogTo", d.ID, l)
		}
		if !idPattern.MatchString(d.ID) {
			return fmt.Errorf("drive %q: id must be a lower-case letter and up to 18 letters or digits", d.ID)
		}
		if seen[d.ID] {
			return fmt.Errorf("drive %s: duplicate id", d.ID)
		}
		seen[d.ID] = true
		if d.Remote && (g.NICs == 0 || d.FS == "") {
			return fmt.Errorf("drive %s: a remote one needs a file system and a network card", d.ID)
		}
		if d.Node < 0 || d.Node >= g.Nodes || g.Nodes > 1 && d.Behind != RootPort {
			return fmt.Errorf("drive %s: memory node %d must be one of %d, and with several the drive behind a port of its own", d.ID, d.Node, g.Nodes)
		}
		if err := d.validate(); err != nil {
			return fmt.Errorf("drive %s: %w", d.ID, err)
		}
	}
	return nil
}

func (d Drive) validate() error {
	switch {
	case d.Sector != 512 && d.Sector != 4096:
		return fmt.Errorf("sector size %d must be 512 or 4096", d.Sector)
	case d.Size <= 0 || d.Size%int64(d.Sector) != 0:
		return fmt.Errorf("size %d must be a multiple of the sector size %d", d.Size, d.Sector)
	case d.FS != "" && d.FS != "ext4" && d.FS != "xfs":
		return fmt.Errorf("unknown file system %q (want ext4, xfs or none)", d.FS)
	case d.Rate < 0:
		return fmt.Errorf("rate of %d bytes per second must not be negative", d.Rate)
	case d.CMB < 0:
		return fmt.Errorf("controller memory buffer of %d MiB must not be negative", d.CMB)
	case d.Behind != "" && !idPattern.MatchString(d.Behind):
		return fmt.Errorf("behind %q must be %q or the name of a switch", d.Behind, RootPort)
	}
	for _, f := range d.Faults {
		if f.Op != Read && f.Op != Write {
			return fmt.Errorf("fault direction %q must be %q or %q", f.Op, Read, Write)
		}
		if f.Sector < 0 || f.Sector >= d.Size/512 {
			return fmt.Errorf("fault at sector %d exceeds the drive of %d sectors", f.Sector, d.Size/512)
		}
	}
	return nil
}

// q35 reports whether the guest needs the machine type with PCI Express. The older
// one boots faster.
func (g Guest) q35() bool {
	return g.IOMMU || g.Nodes > 1 || slices.ContainsFunc(g.Drives, func(d Drive) bool { return d.Behind != "" })
}

// mounts returns the drives with a file system, in order.
func (g Guest) mounts() []job.Mount {
	var ms []job.Mount
	for _, d := range g.Drives {
		if d.FS != "" {
			ms = append(ms, job.Mount{Drive: d.ID, FS: d.FS, Sector: d.Sector, Remote: d.Remote})
		}
	}
	return ms
}

// tempDir is the guest's TMPDIR: on the first drive with a file system, so that
// tests with t.TempDir use it.
func (g Guest) tempDir() string {
	if ms := g.mounts(); len(ms) > 0 {
		return filepath.Join(job.MountRoot, ms[0].Drive)
	}
	return "/tmp"
}

// modules returns the kernel modules that the guest needs if they are not built in.
// Both file systems load crc32c_generic by name at run time.
func (g Guest) modules() []string {
	ms := []string{"virtio_pci", "virtio_console", "9pnet_virtio", "9p", "nvme", "crc32c_generic", "ext4", "xfs", "overlay"}
	if g.NICs > 0 {
		ms = append(ms, "virtio_net")
	}
	remote := slices.ContainsFunc(g.Drives, func(d Drive) bool { return d.Remote })
	if g.Verbs || remote {
		// The first is needed by the second, which does not say so.
		ms = append(ms, "crc32_generic", "rdma_rxe", "ib_uverbs")
	}
	if remote {
		ms = append(ms, "nvmet_rdma", "nvme_rdma")
	}
	if g.IOMMU {
		ms = append(ms, "vfio_iommu_type1", "vfio_pci")
	}
	if slices.ContainsFunc(g.Drives, func(d Drive) bool { return d.LogTo != "" }) {
		ms = append(ms, "loop")
	}
	return append(ms, g.Modules...)
}
