package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/stats"
)

// A Collector gathers what the processes of a run leave behind. The statistics of a
// process that ended may be removed after a minute, so they are read now and then.
type Collector struct {
	dir   string // of the run
	since time.Time

	mu    sync.Mutex
	found map[segment]*stats.Snapshot
	stop  chan struct{}
	done  sync.WaitGroup
}

// A segment is the statistics of one process and one program that it executed.
type segment struct {
	pid     int
	started int64
}

// Collect begins to collect. Every interval it looks for new statistics.
func Collect(dir string, interval time.Duration) *Collector {
	c := &Collector{dir: dir, since: time.Now(), found: map[segment]*stats.Snapshot{}, stop: make(chan struct{})}
	c.done.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-c.stop:
				return
			case <-tick.C:
				c.poll()
			}
		}
	})
	return c
}

// poll reads the statistics of all processes that have a record.
func (c *Collector) poll() {
	recs, err := records(c.dir)
	if err != nil {
		return // Report returns it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pid := range c.processes(recs) {
		for _, s := range stats.OfProcess(pid) {
			if s.Started.Before(c.since) {
				continue // of an earlier process that had the number
			}
			c.found[segment{s.PID, s.Started.UnixNano()}] = s
		}
	}
}

// processes are those that have a record, and their forked children that registered files.
func (c *Collector) processes(recs []*rawRecord) (pids []int) {
	for _, r := range recs {
		pids = append(pids, int(r.PID))
	}
	children, _ := filepath.Glob(filepath.Join(c.dir, "*.child")) // the pattern is right
	for _, path := range children {
		if pid, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".child")); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// running counts the processes that still have a record mapped.
func (c *Collector) running(recs []*rawRecord) (n int) {
	for _, pid := range c.processes(recs) {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if err == nil && strings.Contains(string(maps), "/"+filepath.Base(c.dir)+"/") {
			n++
		}
	}
	return n
}

// routeless counts the processes that moved bytes and have no statistics. Forked children,
// which count in the record of their parent, have their own.
func (c *Collector) routeless(recs []*rawRecord) (n int) {
	known := map[int]bool{}
	for s := range c.found {
		known[s.pid] = true
	}
	if children := c.processes(nil); slices.ContainsFunc(children, func(pid int) bool { return known[pid] }) {
		return 0
	}
	for _, rec := range recs {
		moved := slices.ContainsFunc(rec.Files[:], func(f rawFile) bool { return f.Dir[0].Bytes+f.Dir[1].Bytes > 0 })
		if moved && !known[int(rec.PID)] {
			n++
		}
	}
	return n
}

// Report ends the collection and fills a report. linked says why the program itself
// could not be watched, if it could not.
func (c *Collector) Report(r *Report, linked string) error {
	close(c.stop)
	c.done.Wait()
	c.poll()
	recs, err := records(c.dir)
	if err != nil {
		return err
	}
	for _, rec := range recs {
		r.addRecord(rec)
	}
	for _, s := range c.found {
		r.addStats(s)
	}
	if r.Faults, err = faults(c.dir); err != nil {
		return err
	}
	r.finish()
	without, err := filepath.Glob(filepath.Join(c.dir, "*.full"))
	if err != nil {
		return err
	}
	if len(without) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s no record: no space left in %s", verb(len(without), "has", "have"), filepath.Dir(c.dir)))
	}
	if n := c.routeless(recs); n > 0 && r.Engine == "culvert" {
		r.Notes = append(r.Notes, verb(n, "has", "have")+" transfers here but no routes: there are no statistics with its number (no System V shared memory, or a PID namespace of its own)")
	}
	if n := c.running(recs); n > 0 {
		r.Notes = append(r.Notes, verb(n, "still runs: the report has what it has done so far", "still run: the report has what they have done so far"))
	}
	_, err = os.Stat("/proc/driver/nvidia-fs/version")
	r.infer(err == nil)
	r.explain(linked)
	return nil
}

// verb is a sentence about n processes.
func verb(n int, one, more string) string {
	if n == 1 {
		return "1 process " + one
	}
	return fmt.Sprintf("%d processes %s", n, more)
}

// faults are the faults that came about in all processes, with their number. A process
// keeps a line for each: its text and its count.
func faults(dir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.faults"))
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			end := strings.LastIndexByte(line, '\t') // a pattern of names may contain tabs, too
			if end < 0 {
				continue // being written
			}
			n, _ := strconv.ParseInt(strings.TrimSpace(line[end:]), 10, 64)
			counts[line[:end]] += n
		}
	}
	var list []string
	for spec, n := range counts {
		if n > 0 {
			list = append(list, fmt.Sprintf("%s: %s", spec, human.Count(int(n), "time")))
		}
	}
	return list, nil
}
