package blockstack

import (
	"fmt"
	"strings"
)

// raidPasses are the levels that send the pages of a request to drives as they are.
var raidPasses = map[string]bool{"linear": true, "raid0": true, "raid1": true, "raid10": true}

// raidRuns are the states of an array that serves requests.
var raidRuns = map[string]bool{
	"clean": true, "active": true, "active-idle": true, "write-pending": true, "readonly": true, "read-auto": true,
}

// raid adds an array of the md driver.
func (w *walk) raid(l Layer, dir string) error {
	l.Kind, l.Type = RAID, w.text(dir+"/md/level")
	state := w.text(dir + "/md/array_state")
	l.id += " " + w.text(dir+"/md/uuid") + " " + w.text(dir+"/md/layout") + " " + w.text(dir+"/md/chunk_size")
	switch behind := w.text(dir + "/md/bitmap/backlog"); {
	case strings.HasPrefix(l.Type, "raid4"), strings.HasPrefix(l.Type, "raid5"), strings.HasPrefix(l.Type, "raid6"):
		l.Changes, l.Fix = "computes parity from copies of the host's pages", "put the file on a drive, RAID 0, 1 or 10"
	case !raidPasses[l.Type]:
		l.Changes, l.Fix = "has a level that is not known to pass bytes unchanged", "put the file on a drive, RAID 0, 1 or 10"
	case !raidRuns[state]:
		l.Changes, l.Fix = fmt.Sprintf("does not run: its state is %q", state), "start the array: mdadm --run /dev/"+l.Name
	case behind != "" && behind != "0":
		l.Changes = "writes copies of the host's pages to slow drives later (write-behind)"
		l.Fix = "mdadm --grow --bitmap=none /dev/" + l.Name
	}
	return w.stacked(l, dir)
}
