package suite

import (
	"fmt"
	"strconv"

	"github.com/culvert-io/culvert/lab"
)

// vfio has the NVMe driver in user space drive QEMU's controllers, one of which
// has memory that plays a GPU's BAR.
func vfio() []Suite {
	var ss []Suite
	for _, sector := range sectors {
		const bad = 100 << 10 // in units of 512 bytes
		ss = append(ss, Suite{
			Name:    fmt.Sprintf("vfio/%d", sector),
			Package: module + "/nvme/vfio", Run: "^TestLab", Min: 8,
			Guest: lab.Guest{IOMMU: true, Drives: []lab.Drive{
				{ID: "nv0", Sector: sector, Faults: []lab.Fault{{Op: lab.Read, Sector: bad}}},
				{ID: "cmb", CMB: 16},
			}},
			Env: []string{"CULVERT_WANT_BAD_BLOCK=" + strconv.Itoa(bad*512/sector)},
		})
	}
	return ss
}
