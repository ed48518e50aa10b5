// Package blockstack finds what lies between a file and the drives that have its
// bytes: file system, partition, device mapper, RAID, network. A direct route, on
// which a drive moves bytes to GPU memory and the layers above see only substitute
// pages, is right only if each layer passes bytes unchanged.
package blockstack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-io/culvert/route"
)

// A Stack is the layers below a file, each followed by those that it stands on.
type Stack struct {
	Layers []Layer `json:"layers"`
}

// A Layer is one level of a stack.
type Layer struct {
	Depth  int    `json:"depth"` // 0 for the file system, or for a block device that is used itself
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"`             // "ext4", "dm-0", "nvme0n1"
	Type   string `json:"type,omitempty"`   // "crypt", "raid5"; of a drive the kernel module
	Detail string `json:"detail,omitempty"` // for people: a name, a UUID, how Type is known
	PCI    string `json:"pci,omitempty"`    // address of a drive on PCIe, or of a network adapter
	// Changes says why bytes do not pass this layer unchanged. It is empty if they do.
	Changes string `json:"changes,omitempty"`
	Fix     string `json:"fix,omitempty"`

	adapter string // of a drive, the driver of its PCI function: one module of SCSI has many

	id string // what makes it another layer although all of the above is the same
}

// A Kind is what a layer is.
type Kind string

// The kinds. Below a Network and a Drive there is nothing that this machine sees, except the
// Adapter through which it reaches the drive of another host.
const (
	FileSystem Kind = "file system"
	Overlay    Kind = "overlay"
	Network    Kind = "network"
	Partition  Kind = "partition"
	Mapper     Kind = "device mapper"
	RAID       Kind = "RAID"
	Multipath  Kind = "NVMe multipath"
	Virtual    Kind = "virtual device" // a driver that keeps the bytes elsewhere: loop, nbd, zram
	Drive      Kind = "drive"
	Adapter    Kind = "network adapter"
)

// String is "dm-0 (device mapper crypt)".
func (l *Layer) String() string {
	what := string(l.Kind)
	if l.Type != "" {
		what += " " + l.Type
	}
	return l.Name + " (" + what + ")"
}

// Key is equal for two stacks only if they are the same: what was learned about one
// holds for the other.
func (s *Stack) Key() string {
	var b strings.Builder
	for i := range s.Layers {
		l := &s.Layers[i]
		fmt.Fprintf(&b, "%d %q %q %q %q %q %q\n", l.Depth, l.Kind, l.Name, l.Type, l.Detail, l.Changes, l.id)
	}
	return b.String()
}

// Decline is nil if every layer passes bytes unchanged. Otherwise it names the first
// that does not, as the reason why a direct route cannot be used.
func (s *Stack) Decline(id route.ID) *route.Decline {
	for i := range s.Layers {
		if l := &s.Layers[i]; l.Changes != "" {
			return decline(id, l.String()+" "+l.Changes, l.Fix)
		}
	}
	return nil
}

// DeclineUnhooked is nil if the kernel modules below the file are all among hooked,
// those that have registered with nvidia-fs, and each array has drives of one driver.
// Another module moves the substitute pages, in a write into the file.
func (s *Stack) DeclineUnhooked(id route.ID, hooked []string) *route.Decline {
	for i := range s.Layers {
		l := &s.Layers[i]
		if (l.Kind == Drive || l.Kind == Network) && !slices.Contains(hooked, l.Type) {
			return decline(id, fmt.Sprintf("%s has no nvidia-fs hooks; those that have registered: %s", l, strings.Join(hooked, ", ")),
				"put the file on a drive whose driver supports nvidia-fs")
		}
	}
	for i := range s.Layers {
		if a, b := s.mixed(i); b != nil {
			return decline(id, fmt.Sprintf("%s has drives of different drivers: %s by %s, %s by %s; one that does not know nvidia-fs would keep wrong bytes",
				&s.Layers[i], a.Name, a.moves(), b.Name, b.moves()), "make the array of drives of one driver")
		}
	}
	return nil
}

// mixed finds two drives below layer i, if that is an array, that different drivers move.
func (s *Stack) mixed(i int) (a, b *Layer) {
	if s.Layers[i].Kind != RAID {
		return nil, nil
	}
	for k := i + 1; k < len(s.Layers) && s.Layers[k].Depth > s.Layers[i].Depth; k++ {
		switch l := &s.Layers[k]; {
		case l.Kind != Drive:
		case a == nil:
			a = l
		case a.moves() != l.moves():
			return a, l
		}
	}
	return nil, nil
}

// moves is what moves the bytes of a drive: a kernel module, and the driver of the adapter
// if that is another one.
func (l *Layer) moves() string {
	if l.adapter == "" || l.adapter == l.Type {
		return l.Type
	}
	return l.Type + " on " + l.adapter
}

// Unknown is the decline of a stack that could not be looked at.
func Unknown(id route.ID, err error) *route.Decline {
	return decline(id, err.Error(), "mount /proc and /sys where this process sees them")
}

func decline(id route.ID, evidence, fix string) *route.Decline {
	return &route.Decline{Route: id, Test: "block stack", Evidence: evidence, Fix: fix}
}

// Disk is the block device of the file system, below partitions: a drive, or a device
// made of others; nil if the stack has none.
func (s *Stack) Disk() *Layer {
	i := slices.IndexFunc(s.Layers, func(l Layer) bool {
		return !slices.Contains([]Kind{FileSystem, Overlay, Network, Partition}, l.Kind)
	})
	if i < 0 {
		return nil
	}
	return &s.Layers[i]
}

// Tree returns the stack as lines of text, each layer indented below the one that
// stands on it.
func (s *Stack) Tree() []string {
	var lines []string
	for i := range s.Layers {
		l := &s.Layers[i]
		line := l.String()
		if l.Depth > 0 {
			line = strings.Repeat("   ", l.Depth-1) + "└─ " + line
		}
		if l.Detail != "" {
			line += ", " + l.Detail
		}
		if l.Changes != "" {
			line += ": " + l.Changes
		}
		lines = append(lines, line)
	}
	return lines
}
