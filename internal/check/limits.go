package check

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/internal/cgroup"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/human"
)

// A Limit is a limit of the system for this process.
type Limit struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Note  string `json:"note,omitempty"` // why it matters
	Fix   string `json:"fix,omitempty"`
}

// ringBudget is how much memory the pinned ring may lock by default.
const ringBudget = 256 << 20

func lookLimits(os dev.OS) []Limit {
	return []Limit{memlock(os), cgroupMemory(os), cgroupProcessors(os.FS())}
}

func cgroupMemory(os dev.OS) Limit {
	l := Limit{Name: "cgroup memory", Value: "none"}
	if g := cgroup.MemoryLimit(os.FS()); g != nil {
		l.Value = human.Size(g.Bytes)
	}
	return l
}

// memlock matters to the software machine; CUDA's pinned memory is locked by the
// driver and does not count.
func memlock(os dev.OS) Limit {
	l := Limit{Name: "locked memory (RLIMIT_MEMLOCK)", Value: "unknown"}
	text, err := fs.ReadFile(os.FS(), "proc/self/limits")
	if err != nil {
		l.Note = err.Error()
		return l
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "Max locked memory")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			break
		}
		l.Value = fields[0]
		n, err := strconv.ParseInt(l.Value, 10, 64)
		if err != nil {
			break // unlimited
		}
		l.Value = human.Size(n)
		if n < ringBudget && dev.Simulated(os) {
			l.Note = fmt.Sprintf("the software machine pins up to %s; memory above the limit is not locked", human.Size(ringBudget))
			l.Fix = moreMemlock(fields[1])
		}
	}
	return l
}

// moreMemlock returns how to raise the limit. Only root can raise the hard limit.
func moreMemlock(hard string) string {
	if n, err := strconv.ParseInt(hard, 10, 64); err == nil && n < ringBudget {
		return "as root: ulimit -l unlimited; for a container: --ulimit memlock=-1"
	}
	return "ulimit -l $(ulimit -Hl)"
}

// cgroupProcessors reads the limit of the process's control group (version 2).
func cgroupProcessors(root fs.FS) Limit {
	l := Limit{Name: "cgroup processors", Value: "none"}
	group, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return l
	}
	for line := range strings.Lines(string(group)) {
		dir, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		if !ok {
			continue
		}
		path := strings.TrimSuffix("sys/fs/cgroup/"+dir, "/") + "/cpu.max"
		if text, err := fs.ReadFile(root, path); err == nil {
			l.Value = quota(strings.Fields(string(text)))
		}
	}
	return l
}

// quota prints cpu.max: "max 100000" or "150000 100000".
func quota(fields []string) string {
	switch {
	case len(fields) == 0 || fields[0] == "max":
		return "none"
	case len(fields) == 2:
		time, err1 := strconv.ParseFloat(fields[0], 64)
		period, err2 := strconv.ParseFloat(fields[1], 64)
		if err1 == nil && err2 == nil && period > 0 {
			return fmt.Sprintf("%.3g", time/period)
		}
	}
	return strings.Join(fields, " ")
}
