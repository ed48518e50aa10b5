package storage

import "golang.org/x/sys/unix"

// hugePage is the folio that a fault in a mapping with MADV_HUGEPAGE reads, twice.
const hugePage = 2 << 20

// Fetch reads [off, off+n) of a file into the page cache and waits until most of it is
// there. It does so by faults in a mapping that asks for huge pages, because these
// make large folios where the file system has them. POSIX_FADV_WILLNEED makes single
// pages: they cost twice the processor time when they are filled, three times when
// they are read again, and sixteen threads that read them for the second time wait for
// the lock of the kernel's lists.
//
// An error means that the file cannot be read that way; what is wrong with it the read
// itself finds out.
func Fetch(fd int, off, n int64) error {
	from, to := off&^(hugePage-1), (off+n+pageSize-1)&^(pageSize-1)
	mem, err := unix.Mmap(fd, from, int(to-from), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(mem)
	if err := unix.Madvise(mem, unix.MADV_HUGEPAGE); err != nil {
		return err
	}
	for at := int64(0); at < to-from; at += hugePage {
		// Not by touching it: if the file has become shorter, that would be a signal.
		if err := unix.Madvise(mem[at:at+pageSize], unix.MADV_POPULATE_READ); err != nil {
			return err
		}
	}
	return nil
}
