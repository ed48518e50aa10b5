package transfer

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// A group is files that are complete but for their names. They are put on stable storage,
// named and recorded together: a journal commit of the file system and a sync of the
// directory serve all of them, where a file by itself waits for two of its own.
const (
	groupFiles = 1024
	groupBytes = 64 << 20
	groupAge   = time.Second // of the first file: what is complete is not lost much later
	groupSyncs = 64          // at a time
)

// groupFull reports whether a group is to be published.
func groupFull(files, most int, bytes int64) bool { return files >= most || bytes >= groupBytes }

// groupLimit is how many files a group may have if a process may have that many
// descriptors. A file that waits has up to four, and the next group waits beside one that
// is being published; half of all is for what else the process does.
func groupLimit(descriptors uint64) int { return int(max(1, min(groupFiles, descriptors/16))) }

// descriptors is how many a process may have.
func descriptors() uint64 {
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil {
		return 1024
	}
	return lim.Cur
}

// reserveDescriptors makes room for n descriptors more. A process begins with room for 64,
// and the kernel doubles it when it is full: each time all threads that open a file wait
// until every processor has passed through the scheduler, 6 to 11 ms on two cores.
func reserveDescriptors(n int) {
	if fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, n); err == nil {
		unix.Close(fd)
	}
}

// A waiting file is complete but for its name.
type waiting struct {
	*fileCopy
	file *TreeFile
	pair *dirPair
	err  error
}

// A publisher collects files and publishes them in groups.
type publisher struct {
	most  int // files of a group
	files chan *waiting
	ended chan struct{}
	age   func() <-chan time.Time // of a group that begins: delivers when it is to be published
}

func newPublisher(most int) *publisher {
	age := func() <-chan time.Time { return time.After(groupAge) }
	return &publisher{most, make(chan *waiting, most), make(chan struct{}), age}
}

// run publishes until no more files come.
func (p *publisher) run(publish func([]*waiting)) {
	defer close(p.ended)
	var group []*waiting
	var bytes int64
	var due <-chan time.Time
	for more := true; more; {
		var w *waiting
		select {
		case w, more = <-p.files:
		case <-due:
		}
		if w != nil {
			if group, bytes = append(group, w), bytes+w.source.Size; len(group) == 1 {
				due = p.age()
			}
			if !groupFull(len(group), p.most, bytes) {
				continue
			}
		}
		publish(group)
		group, bytes, due = nil, 0, nil
	}
}

// stop publishes what is left, and waits for that.
func (p *publisher) stop() {
	close(p.files)
	<-p.ended
}

// A groupWriter publishes the groups of a copy.
type groupWriter struct {
	dst    *atomicfile.Dir
	opts   *TreeOptions
	record func(group []*waiting) // enters in a journal those that have their names
	ended  func(w *waiting)
}

// publish puts files on stable storage, gives them their names, and records them. A file
// that fails leaves the others alone.
func (c *groupWriter) publish(ctx context.Context, group []*waiting) {
	dev, synced := c.syncTogether(group)
	if !synced {
		startWriting(group)
	}
	atOnce(group, func(w *waiting) {
		if w.err == nil {
			w.err = w.settle(ctx, synced && w.attrs.dev == dev)
		}
	})
	dirs := byDirectory(group)
	atOnce(dirs, publishIn)
	c.syncDirs(dirs)
	atOnce(dirs, endIn)
	c.record(group)
	for _, w := range group {
		c.ended(w)
	}
}

// byDirectory divides a group by the directories of its files: the kernel names one file
// of a directory at a time, and files of several at once.
func byDirectory(group []*waiting) (dirs [][]*waiting) {
	at := map[*atomicfile.Dir]int{}
	for _, w := range group {
		i, ok := at[w.dir]
		if !ok {
			i = len(dirs)
			at[w.dir], dirs = i, append(dirs, nil)
		}
		dirs[i] = append(dirs[i], w)
	}
	return dirs
}

// publishIn gives the files of a directory their names.
func publishIn(dir []*waiting) {
	for _, w := range dir {
		if w.err == nil {
			w.err = w.out.Publish()
		}
	}
}

// endIn closes the files of a directory.
func endIn(dir []*waiting) {
	for _, w := range dir {
		w.err = w.end(w.err)
	}
}

// syncDirs forces the names in each directory of a group to storage, once.
func (c *groupWriter) syncDirs(dirs [][]*waiting) {
	atOnce(dirs, func(dir []*waiting) {
		named := slices.DeleteFunc(slices.Clone(dir), func(w *waiting) bool { return w.err != nil })
		if len(named) == 0 {
			return
		}
		c.opts.step()
		err := named[0].dir.Sync()
		for _, w := range named {
			w.err = err
		}
	})
}

// record enters the files of a group in the journal.
func (c *treeCopy) record(group []*waiting) {
	c.opts.step()
	var done []*waiting
	for _, w := range group {
		if w.err == nil {
			done = append(done, w)
		}
	}
	err := c.journal.add(done)
	for _, w := range done {
		w.err = err
	}
	c.reserveLines()
}

// atOnce calls f for all elements of a list, some of them at the same time: a file system
// merges syncs that wait together.
func atOnce[T any](list []T, f func(T)) {
	next := make(chan T)
	var wg sync.WaitGroup
	for range min(groupSyncs, len(list)) {
		wg.Go(func() {
			for e := range next {
				f(e)
			}
		})
	}
	for _, e := range list {
		next <- e
	}
	close(next)
	wg.Wait()
}
