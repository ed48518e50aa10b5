package ladder

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/blockstack"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/sysfs"
	"github.com/culvert-io/culvert/route"
)

// rejection explains an error of direct I/O on peer memory; nil if the kernel did not
// reject the request.
func (p *p2pdmaRoute) rejection(f *storage.File, err error) *route.Decline {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return nil
	}
	said := fmt.Sprintf("direct I/O returns %s (%v)", unix.ErrnoName(errno), errno)
	switch errno {
	case unix.EREMOTEIO:
		return p.noPath(f, said)
	case unix.EOPNOTSUPP:
		return p.wrongDriver(f, said)
	case unix.EINVAL:
		return decline(route.P2PDMA, "alignment", fmt.Sprintf("%s requires more than %d bytes of alignment: %s", f.Name, f.Facts.Direct.OffAlign, said), "")
	case unix.EFAULT:
		return decline(route.P2PDMA, "peer pages", "kernel rejects the GPU mapping as an I/O buffer: "+said, "use Linux 6.2 or later with CONFIG_PCI_P2PDMA")
	}
	return nil
}

// noPath finds the cause of EREMOTEIO: the block driver does not support peer memory,
// or the drive cannot reach the device.
func (p *p2pdmaRoute) noPath(f *storage.File, said string) *route.Decline {
	d, pci := p.drive(f)
	if pci == "" {
		return p.wrongDriver(f, said)
	}
	peer := p.peer.PeerDevice()
	if above := commonBridge(p.root, pci, peer); above != "" {
		return decline(route.P2PDMA, "PCIe access control", fmt.Sprintf("%s and the GPU's memory at %s are both below %s, but the kernel allows no traffic between them: %s", d, peer, above, said),
			"boot with pci=disable_acs_redir="+above)
	}
	return decline(route.P2PDMA, "PCIe distance", fmt.Sprintf("%s and the GPU's memory at %s have no switch in common, and the kernel does not trust the host bridge: %s", d, peer, said),
		"put both below one PCIe switch")
}

func (p *p2pdmaRoute) wrongDriver(f *storage.File, said string) *route.Decline {
	d, _ := p.drive(f)
	return decline(route.P2PDMA, "block driver", d+" does not accept P2PDMA pages: "+said, "put the file on an NVMe drive, without RAID or encryption in between")
}

// unplugged reports whether the device that has the memory is gone.
func (p *p2pdmaRoute) unplugged() bool {
	_, err := fs.Stat(p.root, "sys/bus/pci/devices/"+p.peer.PeerDevice()+"/p2pmem")
	return errors.Is(err, fs.ErrNotExist)
}

// drive names what has the bytes of a file. pci is its address if it is an NVMe drive.
func (p *p2pdmaRoute) drive(f *storage.File) (name, pci string) {
	s, err := blockstack.Look(p.os, f.Facts)
	if err != nil || s.Disk() == nil {
		return f.Facts.FS, ""
	}
	d := s.Disk()
	name = d.String()
	if d.PCI != "" {
		name += " at " + d.PCI
	}
	if d.Type != "nvme" {
		return name, ""
	}
	return name, d.PCI
}

// commonBridge is the nearest PCI bridge above two devices; "" if only the host bridge
// is above both.
func commonBridge(root fs.FS, a, b string) (last string) {
	x, y := sysfs.Above(root, a), sysfs.Above(root, b)
	for i := 0; i < min(len(x), len(y)) && x[i] == y[i]; i++ {
		if i > 0 { // below the host bridge
			last = x[i]
		}
	}
	return last
}
