package transfer

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// The message of a full file system begins with the cause, once.
func TestFullError(t *testing.T) {
	err := full(full(fmt.Errorf("write .f.culvert-part: %w", unix.ENOSPC)))
	if want := "no space left on device (write .f.culvert-part)"; err.Error() != want || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v, want %s", err, want)
	}
	if other := unix.EIO; full(other) != error(other) {
		t.Error("another error was changed")
	}
}

// What a copy needs room for is the data between the holes that it keeps.
func TestDataBetween(t *testing.T) {
	dir := t.TempDir()
	path, _ := writeFile(t, dir, 1<<20)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Truncate(8<<20), unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 512<<10)); err != nil {
		t.Skip(err)
	}
	for start, want := range map[int64]int64{0: 512 << 10, 768 << 10: 256 << 10, 4 << 20: 0} {
		if got := dataBetween(f, start, 8<<20); got != want {
			t.Errorf("%d bytes of data behind %d, want %d", got, start, want)
		}
	}
}
