package softcuda

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
)

// CUDA's error log: what a failed call says beside its code, for callbacks and dumps.

const (
	logKept   = 100      // entries, as CUDA documents
	logMemory = 25600    // the largest buffer of cuLogsDumpToMemory
	logError  = int32(0) // CU_LOG_LEVEL_ERROR
)

type logs struct {
	callbacks *handle.Table[logCallback]

	mu      sync.Mutex
	entries []string // the newest, with their newlines
	last    uint32   // the number of entries ever
}

type logCallback struct{ fn, user cmem.Ptr }

// Note adds the error of a failed function to the log and calls the program's callbacks. That
// work is not done yet is no error.
func (d *Driver) Note(function string, err error) {
	if errors.Is(err, gpu.ErrNotReady) {
		return
	}
	entry := fmt.Sprintf("[%s][%d][CUDA][E][%s] %v\n", time.Now().Format("15:04:05.000"), unix.Gettid(), function, err)
	d.logs.mu.Lock()
	d.logs.entries = append(d.logs.entries, entry)
	d.logs.entries = d.logs.entries[max(0, len(d.logs.entries)-logKept):]
	d.logs.last++
	d.logs.mu.Unlock()
	for _, c := range d.logs.callbacks.All() {
		d.call.LogCallback(c.fn, c.user, logError, strings.TrimSuffix(entry, "\n"))
	}
}

// LogsRegisterCallback is cuLogsRegisterCallback.
func (d *Driver) LogsRegisterCallback(_ Call, fn, user, out cmem.Ptr) error {
	if fn == 0 {
		return gpu.ErrInvalidValue
	}
	return add(d.logs.callbacks, out, logCallback{fn, user})
}

// LogsUnregisterCallback is cuLogsUnregisterCallback.
func (d *Driver) LogsUnregisterCallback(_ Call, id handle.ID) error {
	if _, ok := d.logs.callbacks.Remove(id); !ok {
		return gpu.ErrInvalidValue
	}
	return nil
}

// LogsCurrent is cuLogsCurrent: the end of the log.
func (d *Driver) LogsCurrent(_ Call, out cmem.Ptr, flags uint32) error {
	if flags != 0 {
		return gpu.ErrInvalidValue
	}
	d.logs.mu.Lock()
	defer d.logs.mu.Unlock()
	return cmem.Answer(out, d.logs.last)
}

// LogsDumpToFile is cuLogsDumpToFile.
func (d *Driver) LogsDumpToFile(_ Call, iterator, path cmem.Ptr, flags uint32) error {
	name, ok := cmem.String(path, unix.PathMax)
	if !ok || flags != 0 {
		return gpu.ErrInvalidValue
	}
	entries, note := d.logs.since(iterator)
	if err := os.WriteFile(name, []byte(note+strings.Join(entries, "")), 0o666); err != nil {
		return gpu.Fail("cuLogsDumpToFile", gpu.ErrOperatingSystem, err.Error())
	}
	return nil
}

// LogsDumpToMemory is cuLogsDumpToMemory: the newest entries that fit, ended by a zero.
func (d *Driver) LogsDumpToMemory(_ Call, iterator, buffer, size cmem.Ptr, flags uint32) error {
	room := int(min(cmem.Load[uint64](size), logMemory))
	if flags != 0 || room == 0 {
		return gpu.ErrInvalidValue
	}
	entries, note := d.logs.since(iterator)
	for len(note)+length(entries) >= room && len(entries) > 0 {
		entries, note = entries[1:], "older entries do not fit\n"
	}
	text := note + strings.Join(entries, "")
	text = text[:min(len(text), room-1)]
	cmem.StoreAll(buffer, []byte(text+"\x00"))
	return cmem.Answer(size, uint64(len(text)+1))
}

func length(entries []string) (n int) {
	for _, e := range entries {
		n += len(e)
	}
	return n
}

// since returns the entries from the one of an iterator on, which it moves to the end, and a
// note if older ones are lost. NULL is all entries.
func (l *logs) since(iterator cmem.Ptr) (entries []string, note string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, from := l.last-uint32(len(l.entries)), uint32(0)
	if iterator != 0 {
		from = min(cmem.Load[uint32](iterator), l.last)
		cmem.Store(iterator, l.last)
	}
	if from < first {
		from, note = first, "older entries were not kept\n"
	}
	return slices.Clone(l.entries[from-first:]), note
}
