package cufiletest

import (
	"golang.org/x/sys/unix"
)

// sequences are a few calls on one file: what one leaves, the next must find.
func sequences() []Case {
	read := func(off int64, n uint64) Step { return Step{Call: Read, Off: off, Len: n, Buf: 3} }
	write := func(off int64, n uint64) Step { return Step{Call: Write, Off: off, Len: n, Buf: 5} }
	truncate := func(n int64) Step { return Step{Call: Truncate, Off: n} }
	var cases []Case
	for _, c := range []steps{
		{"shrink", []Step{register, read(0, 65536), truncate(30_000), read(0, 65536), read(29_999, 10), read(30_000, 10), truncate(0), read(0, 65536)}},
		{"shrink-and-grow", []Step{register, read(0, 65536), truncate(5000), truncate(50_000), read(0, 65536), read(4999, 2)}},
		{"grow", []Step{register, read(0, 200_000), truncate(150_000), read(90_000, 100_000)}},
		{"write-then-read", []Step{register, write(1000, 5000), read(0, 65536), write(1003, 4096), read(999, 8192)}},
		{"write-past-end", []Step{register, write(200_000, 10), read(90_000, 120_000)}},
		{"write-across-end", []Step{register, write(99_000, 5000), read(90_000, 120_000), write(104_000, 4096), read(99_000, 20_000)}},
		{"write-after-shrink", []Step{register, read(0, 65536), truncate(4096), write(8192, 4096), read(0, 65536)}},
		{"write-empty", []Step{register, truncate(0), write(0, 1), write(1, 4095), write(4096, 4096), read(0, 65536)}},
		{"overwrite", []Step{register, write(0, 65536), write(4096, 4096), write(4095, 2), read(0, 100_000)}},
		{"far", []Step{register, write(1<<32+1, 5000), read(1<<32-5, 5010), truncate(10)}},
		{"reopen", []Step{register, write(5, 5), {Call: Deregister}, register, read(0, 4096), write(7, 5), read(0, 100)}},
	} {
		for _, on := range []Place{Disk, Shm} {
			for _, flags := range []int{unix.O_RDWR, unix.O_RDWR | unix.O_DIRECT} {
				for _, k := range []Kind{Device, Virtual, Pinned} {
					cases = append(cases, Case{name("sequence", c.name, on, flagsName(flags), k), on, File{Size: checkFile, Flags: flags}, Mem{k, checkMem}, c.steps})
				}
			}
		}
	}
	return cases
}

// holes are files with bytes that were never written.
func holes() []Case {
	const size = 192 << 10
	var cases []Case
	for _, c := range []struct {
		name  string
		holes []Range
	}{
		{"all", []Range{{0, size}}},
		{"first", []Range{{0, 64 << 10}}},
		{"middle", []Range{{64 << 10, 64 << 10}}},
		{"last", []Range{{128 << 10, 64 << 10}}},
		{"comb", []Range{{4096, 4096}, {12288, 4096}, {20480, 8192}, {64 << 10, 4096}, {100 << 10, 28 << 10}}},
		{"unaligned", []Range{{5000, 70_000}}},
		{"all-but-last-byte", []Range{{0, size - 1}}},
	} {
		for _, on := range []Place{Disk, Shm} {
			for _, flags := range []int{unix.O_RDWR, unix.O_RDWR | unix.O_DIRECT} {
				cases = append(cases, Case{
					name("hole", c.name, on, flagsName(flags)), on,
					File{size, c.holes, flags},
					Mem{Device, 256 << 10},
					[]Step{
						register,
						{Call: Read, Len: size + 10},
						{Call: Read, Off: 4095, Len: 4098, Buf: 11},
						{Call: Read, Off: 64<<10 - 1, Len: 64<<10 + 2, Buf: 4096},
						{Call: Write, Off: 66_000, Len: 3000, Buf: 77},
						{Call: Read, Off: 60_000, Len: 20_000, Buf: 8},
					},
				})
			}
		}
	}
	return cases
}
