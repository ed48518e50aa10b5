package blockstack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-io/culvert/internal/dev"
)

// The interface of /dev/mapper/control, linux/dm-ioctl.h.
const (
	mapperControl = "/dev/mapper/control"
	tableStatus   = 0xc138fd0c // _IOWR(0xfd, 12, struct dm_ioctl)
	headerSize    = 312        // of struct dm_ioctl
	specSize      = 40         // of struct dm_target_spec
	flagNoFlush   = 1 << 11    // do not write metadata for the status
	flagFull      = 1 << 8     // the answer did not fit
)

// A tableCall is struct dm_ioctl, with room for the answer.
type tableCall struct {
	Version     [3]uint32
	DataSize    uint32
	DataStart   uint32
	TargetCount uint32
	OpenCount   int32
	Flags       uint32
	EventNr     uint32
	_           uint32
	Dev         uint64
	Name        [128]byte
	UUID        [129]byte
	_           [7]byte
	Data        [16<<10 - headerSize]byte
}

// mapperTypes asks device mapper for the target types of a device's table. It asks
// for the status, not for the table: the table of crypt contains the key.
func mapperTypes(o dev.OS, number string) ([]string, error) {
	var major, minor uint64
	if _, err := fmt.Sscanf(number, "%d:%d", &major, &minor); err != nil {
		return nil, fmt.Errorf("device number %q: %w", number, err)
	}
	node, err := o.Open(mapperControl)
	if err != nil {
		return nil, err
	}
	defer node.Close()
	call := &tableCall{
		Version: [3]uint32{4, 0, 0}, DataSize: 16 << 10, DataStart: headerSize, Flags: flagNoFlush,
		Dev: minor&0xff | major<<8 | minor&^0xff<<12,
	}
	if err := dev.Ioctl(node, tableStatus, call); err != nil {
		return nil, err
	}
	return parseTypes(call)
}

var errTable = errors.New("device mapper's answer is damaged or too long")

// parseTypes lists the different types in an answer.
func parseTypes(c *tableCall) (types []string, err error) {
	if c.Flags&flagFull != 0 || c.DataStart < headerSize || c.TargetCount == 0 {
		return nil, errTable
	}
	start := uint64(c.DataStart) - headerSize
	for at, n := start, uint32(0); n < c.TargetCount; n++ {
		if at+specSize > uint64(len(c.Data)) {
			return nil, errTable
		}
		spec := c.Data[at : at+specSize]
		name, _, _ := bytes.Cut(spec[24:], []byte{0})
		if len(name) == 0 {
			return nil, errTable
		}
		if t := strings.ToValidUTF8(string(name), "?"); !slices.Contains(types, t) {
			types = append(types, t)
		}
		// next is the distance from the first to the next target.
		next := start + uint64(binary.NativeEndian.Uint32(spec[20:]))
		if next <= at && n+1 < c.TargetCount {
			return nil, errTable
		}
		at = next
	}
	return types, nil
}
