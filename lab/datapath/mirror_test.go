package datapath

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/uring"
	"github.com/culvert-io/culvert/lab/inside"
)

// TestMirrorSpreadsReads: RAID 1 serves reads that are in flight together from both
// drives, and in every round if they are one submission. The proof of writes depends on it,
// where one drive of a mirror has taken other bytes: a single read would always be served
// by the same drive.
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
	const rounds = 50
	byThreads := func() {
		var wg sync.WaitGroup
		for k := range blocks {
			wg.Go(func() {
				if n, err := unix.Pread(fd, mem[k*block:(k+1)*block], int64(k*block)); n != block || err != nil {
					t.Error(n, err)
				}
			})
		}
		wg.Wait()
	}
	// One submission, the last block first; different counts the blocks that are read.
	submitted := func(different int) func() {
		return func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			u, err := uring.New(blocks)
			if err != nil {
				t.Fatal(err)
			}
			for k := range blocks {
				err = errors.Join(err, u.Read(fd, mem[k*block:(k+1)*block], int64((blocks-1-k)%different*block), 0))
			}
			if err := errors.Join(err, u.Submit(blocks), u.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		what string
		read func()
		min  int // rounds in which both drives serve
	}{
		{"by threads", byThreads, 1},
		{"by one submission", submitted(blocks), rounds},
		{"by one submission, one block", submitted(1), rounds},
	} {
		served, both := [3]int{}, 0 // by the first byte
		for range rounds {
			clear(mem)
			c.read()
			var now [3]int
			for k := range blocks {
				now[mem[k*block]]++
			}
			served[1], served[2] = served[1]+now[1], served[2]+now[2]
			if now[1] > 0 && now[2] > 0 {
				both++
			}
		}
		t.Logf("%s: of %d reads, %d at a time, %d and %d were served by the two drives; by both in %d of %d rounds", c.what, rounds*blocks, blocks, served[1], served[2], both, rounds)
		if both < c.min {
			t.Errorf("%s: reads at the same time are served by one drive in %d rounds", c.what, rounds-both)
		}
	}
}
