package datapath

import (
	"bytes"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
)

// TestMirrorSpreadsReads: RAID 1 serves reads that are in flight together from both
// drives. The proof of writes depends on it, where one drive of a mirror has taken other
// bytes: a single read would always be served by the same drive.
func TestMirrorSpreadsReads(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_STACKS")
	const block, blocks = 4096, 16
	drives := []string{rawDisk(t, "raw1"), rawDisk(t, "raw2")}
	for i, d := range drives { // the array of the old format begins where the drive does
		f, err := os.OpenFile(d, os.O_WRONLY|os.O_SYNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(bytes.Repeat([]byte{byte(1 + i)}, blocks*block), 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	fd, err := unix.Open(array(t, 1, drives...), unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	mem, err := unix.Mmap(-1, 0, blocks*block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	var served [3]int // by the first byte
	both := 0
	const rounds = 50
	for range rounds {
		clear(mem)
		var wg sync.WaitGroup
		for k := range blocks {
			wg.Go(func() {
				if n, err := unix.Pread(fd, mem[k*block:(k+1)*block], int64(k*block)); n != block || err != nil {
					t.Error(n, err)
				}
			})
		}
		wg.Wait()
		var now [3]int
		for k := range blocks {
			now[mem[k*block]]++
		}
		served[1], served[2] = served[1]+now[1], served[2]+now[2]
		if now[1] > 0 && now[2] > 0 {
			both++
		}
	}
	t.Logf("of %d reads, %d at a time, %d and %d were served by the two drives; by both in %d of %d rounds", rounds*blocks, blocks, served[1], served[2], both, rounds)
	if both == 0 {
		t.Error("reads at the same time are all served by one drive")
	}
}
