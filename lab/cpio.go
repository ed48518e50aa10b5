package lab

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// From the mode field of cpio(5).
const (
	typeDir     = 0o040000
	typeRegular = 0o100000
	permissions = 0o7777
)

const (
	cpioMagic   = "070701"
	cpioTrailer = "TRAILER!!!"
)

// A cpioWriter writes an archive of directories and files in the "newc" format,
// which the Linux kernel unpacks as its initial root file system. All entries are
// owned by root. After an error its methods do nothing, and close returns the error.
type cpioWriter struct {
	w     io.Writer
	off   int64
	inode uint32
	err   error
}

// dir adds a directory. Its parents must have been added: the kernel creates none.
func (w *cpioWriter) dir(name string, perm uint32) {
	w.entry(name, typeDir|perm&permissions, 0, strings.NewReader(""))
}

// file adds a regular file with size bytes from r.
func (w *cpioWriter) file(name string, perm uint32, size int64, r io.Reader) {
	w.entry(name, typeRegular|perm&permissions, size, r)
}

// close ends the archive. It does not close the underlying writer.
func (w *cpioWriter) close() error {
	w.header(cpioTrailer, 0, 0, 0)
	w.pad()
	return w.err
}

func (w *cpioWriter) entry(name string, mode uint32, size int64, r io.Reader) {
	if w.err == nil {
		w.err = checkEntry(name, size)
	}
	w.inode++
	w.header(name, w.inode, mode, uint32(size))
	if w.err != nil {
		return
	}
	n, err := io.Copy(w.w, io.LimitReader(r, size))
	w.off += n
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		w.err = fmt.Errorf("cpio: %s: %d of %d bytes: %w", name, n, size, err)
	}
	w.pad()
}

func checkEntry(name string, size int64) error {
	switch {
	case name == "" || name == cpioTrailer || strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0):
		return fmt.Errorf("cpio: bad name %q", name)
	case size < 0 || size > math.MaxUint32:
		return fmt.Errorf("cpio: %s: %d bytes do not fit into the format's 32-bit size", name, size)
	}
	return nil
}

// header writes the fields in the format's order: ino, mode, uid, gid, nlink,
// mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check.
// The time is 0: the same files make the same archive.
func (w *cpioWriter) header(name string, ino, mode, size uint32) {
	nlink := uint32(1)
	if mode&typeDir != 0 && mode&typeRegular == 0 {
		nlink = 2
	}
	w.print("%s%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		cpioMagic, ino, mode, 0, 0, nlink, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	w.pad()
}

func (w *cpioWriter) pad() {
	if n := -w.off & 3; n > 0 {
		w.print("%s", "\x00\x00\x00"[:n])
	}
}

func (w *cpioWriter) print(format string, args ...any) {
	if w.err != nil {
		return
	}
	n, err := fmt.Fprintf(w.w, format, args...)
	w.off += int64(n)
	if err != nil {
		w.err = fmt.Errorf("cpio: %w", err)
	}
}
