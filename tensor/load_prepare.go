package tensor

import (
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/internal/phase"
)

// prepareTogether makes what the first byte needs, all at the same time: it opens the
// files, opens the GPUs, allocates device memory and pins host memory; when files and
// GPUs are open, the storage starts to read. Only registration waits for all of it.
func (l *Load) prepareTogether() error {
	var files, memory error
	gpus := make(chan bool, 1) // whether they could be opened
	if l.opts.host != nil {    // the memory is there
		memory, files = l.prepareMemory(gpus), l.prepareFiles(gpus)
	} else {
		var g errgroup.Group
		g.Go(func() error {
			files = l.prepareFiles(gpus)
			return nil
		})
		g.Go(func() error {
			memory = l.prepareMemory(gpus)
			return nil
		})
		_ = g.Wait()
	}
	switch { // of two errors, that of a file explains more
	case files != nil:
		return files
	case memory != nil:
		return memory
	}
	defer phase.Begin("register memory")()
	return l.register()
}

// prepareFiles opens the files and starts to read them.
func (l *Load) prepareFiles(gpus <-chan bool) error {
	end, begin := phase.Begin("open files"), time.Now()
	err := l.openFiles()
	l.report.Open = time.Since(begin)
	end()
	if err != nil || !<-gpus {
		return err
	}
	return l.startReading()
}

// prepareMemory opens the GPUs, tells so, and makes memory on both sides of the link.
func (l *Load) prepareMemory(gpus chan<- bool) error {
	end, begin := phase.Begin("open GPUs"), time.Now()
	defer func() { l.report.Alloc = time.Since(begin) }()
	err := l.openDevices()
	end()
	gpus <- err == nil
	if err != nil {
		return err
	}
	if l.opts.host != nil {
		return l.allocate()
	}
	var g errgroup.Group
	for _, i := range l.plan.Devices() {
		g.Go(func() error {
			if l.plan.Totals().Read < worthPreparing {
				return nil
			}
			defer phase.Begin("pin host memory")()
			return l.engine.prepare(i)
		})
	}
	g.Go(func() error {
		defer phase.Begin("allocate device memory")()
		return l.allocate()
	})
	return g.Wait()
}

// worthPreparing is the size from which a load uses more than a few slots.
const worthPreparing = 64 << 20

func (l *Load) openDevices() error {
	for _, i := range l.plan.Devices() {
		dev, err := l.engine.device(i)
		if err != nil {
			return err
		}
		l.devices[i] = &loadDevice{dev: dev}
		if l.opts.Verify {
			l.devices[i].checker = newChecker(l, i)
		}
	}
	return nil
}

// startReading starts the first read of each device, unless a drive does it.
func (l *Load) startReading() error {
	started := map[int]bool{}
	for i := range l.plan.Reads {
		r := &l.plan.Reads[i]
		device := l.plan.Buffers[r.Buffer].Device
		if started[device] {
			continue
		}
		started[device] = true
		if l.files[r.File].direct(device) {
			continue
		}
		if err := l.files[r.File].start(r.Off, r.Size()); err != nil {
			return err
		}
	}
	return nil
}
