// Package cpio writes archives in the "newc" format, the one that the Linux
// kernel unpacks as its initial root file system. Only what an initramfs needs
// is there: directories, regular files and symbolic links, all owned by root.
package cpio

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// File type bits of the mode field.
const (
	typeDir     = 0o040000
	typeRegular = 0o100000
	typeSymlink = 0o120000
	permissions = 0o7777
)

const (
	magic   = "070701"
	trailer = "TRAILER!!!"
)

// A Writer writes one archive. Methods fail for good after the first error, so
// that a caller may check Close alone.
type Writer struct {
	w     io.Writer
	off   int64
	inode uint32
	err   error
}

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Dir adds a directory. The kernel creates no parents by itself: they come
// first.
func (w *Writer) Dir(name string, perm uint32) error {
	return w.entry(name, typeDir|perm&permissions, 0, strings.NewReader(""))
}

// Symlink adds a symbolic link that points to target.
func (w *Writer) Symlink(name, target string) error {
	return w.entry(name, typeSymlink|0o777, int64(len(target)), strings.NewReader(target))
}

// File adds a regular file with size bytes from r.
func (w *Writer) File(name string, perm uint32, size int64, r io.Reader) error {
	return w.entry(name, typeRegular|perm&permissions, size, r)
}

// Close ends the archive. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	w.header(trailer, 0, 0, 0)
	w.pad()
	return w.err
}

func (w *Writer) entry(name string, mode uint32, size int64, r io.Reader) error {
	if w.err != nil {
		return w.err
	}
	if err := check(name, size); err != nil {
		w.err = err
		return err
	}
	w.inode++
	w.header(name, w.inode, mode, uint32(size))
	if w.err != nil {
		return w.err
	}
	n, err := io.Copy(w.w, io.LimitReader(r, size))
	w.off += n
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		w.err = fmt.Errorf("cpio: %s: %d of %d bytes: %w", name, n, size, err)
		return w.err
	}
	w.pad()
	return w.err
}

func check(name string, size int64) error {
	switch {
	case name == "" || name == trailer || strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0):
		return fmt.Errorf("cpio: bad name %q", name)
	case size < 0 || size > math.MaxUint32:
		return fmt.Errorf("cpio: %s: %d bytes do not fit into the format's 32-bit size", name, size)
	}
	return nil
}

// header writes the fields in the format's order: ino, mode, uid, gid, nlink,
// mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check.
// The time is 0: the same files make the same archive.
func (w *Writer) header(name string, ino, mode, size uint32) {
	nlink := uint32(1)
	if mode&typeDir != 0 && mode&typeRegular == 0 {
		nlink = 2
	}
	w.print("%s%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		magic, ino, mode, 0, 0, nlink, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	w.pad()
}

func (w *Writer) pad() {
	if n := -w.off & 3; n > 0 {
		w.print("%s", "\x00\x00\x00"[:n])
	}
}

func (w *Writer) print(format string, args ...any) {
	if w.err != nil {
		return
	}
	n, err := fmt.Fprintf(w.w, format, args...)
	w.off += int64(n)
	if err != nil {
		w.err = fmt.Errorf("cpio: %w", err)
	}
}
