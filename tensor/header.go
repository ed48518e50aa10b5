package tensor

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// A File is a safetensors file whose header has been read and found correct.
type File struct {
	Path     string
	Size     int64
	Data     int64 // where the header ends and tensors begin
	Metadata map[string]string
	Tensors  []Info // by offset

	stat os.FileInfo // of what was read; nil where it was no file
}

// OpenFile reads and checks the header of a safetensors file. No tensor is
// read, and the file does not stay open.
func OpenFile(path string) (*File, error) {
	// A pipe is refused below, and to open it must not wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file: a safetensors file must have a size", path)
	}
	h, err := ReadHeader(f, st.Size())
	if err != nil {
		if fe, ok := errors.AsType[*FormatError](err); ok {
			fe.File = path
			return nil, fe
		}
		return nil, fmt.Errorf("%s: reading the header: %w", path, err)
	}
	h.Path, h.stat = path, st
	return h, nil
}

// ErrChanged says that a file is not the one any more whose header was read.
var ErrChanged = errors.New("the file was replaced or changed since its header was read")

// check reports whether the file is still the one whose header was read: else
// there would be other bytes where a tensor is said to be. Its inode says nothing:
// file systems that fetch objects over the network number them anew.
func (f *File) check() error {
	if f.stat == nil {
		return nil
	}
	st, err := os.Stat(f.Path)
	if err != nil {
		return err
	}
	if st.Size() != f.stat.Size() || !st.ModTime().Equal(f.stat.ModTime()) {
		return fmt.Errorf("%s: %w: open it again", f.Path, ErrChanged)
	}
	return nil
}

// ReadHeader reads and checks the header of a safetensors file of the given
// size. Every byte behind the header must belong to exactly one tensor. Errors
// are of type *FormatError unless r failed.
func ReadHeader(r io.ReaderAt, size int64) (*File, error) {
	if size < lengthSize {
		return nil, breaks(RuleLength, "", "the file has %d bytes", size)
	}
	var length [lengthSize]byte
	if err := readFull(r, length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > MaxHeader {
		return nil, breaks(RuleHeaderMax, "", "the header claims %d bytes: not a safetensors file, or a broken one", n)
	}
	if int64(n) > size-lengthSize {
		return nil, breaks(RuleHeaderEnd, "", "the header claims %d bytes, %d follow", n, size-lengthSize)
	}
	text := make([]byte, n)
	if err := readFull(r, text, lengthSize); err != nil {
		return nil, err
	}
	f := &File{Size: size, Data: lengthSize + int64(n)}
	if err := f.parse(text); err != nil {
		return nil, err
	}
	if err := f.validate(); err != nil {
		return nil, err
	}
	return f, nil
}

// readFull treats a file that became shorter than it was as an error of r.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (f *File) parse(text []byte) error {
	if !utf8.Valid(text) {
		return breaks(RuleUTF8, "", "the header has invalid bytes")
	}
	s := &scanner{b: text}
	seen := make(map[string]struct{})
	err := s.object(func(key []byte) error {
		name := string(key)
		if _, ok := seen[name]; ok {
			return breaks(RuleDuplicate, name, "the name occurs twice")
		}
		seen[name] = struct{}{}
		if name == metadataKey {
			return f.parseMetadata(s)
		}
		info, err := parseInfo(s, name)
		f.Tensors = append(f.Tensors, info)
		return err
	})
	if err == nil {
		err = s.end()
	}
	if se, ok := errors.AsType[*syntaxError](err); ok {
		return breaks(RuleJSON, "", "%v", se)
	}
	return err
}

func (f *File) parseMetadata(s *scanner) error {
	f.Metadata = make(map[string]string)
	if s.peek() != '{' {
		return breaks(RuleMetadata, "", "__metadata__ is not an object at byte %d of the header", s.i)
	}
	return s.object(func(k []byte) error {
		key := string(k)
		if _, ok := f.Metadata[key]; ok {
			return breaks(RuleDuplicate, "", "the key %q of __metadata__ occurs twice", key)
		}
		if s.peek() != '"' {
			return breaks(RuleMetadata, "", "the value of %q is not a string at byte %d of the header", key, s.i)
		}
		v, err := s.str()
		f.Metadata[key] = v
		return err
	})
}

// parseInfo reads a tensor's entry. Off and Len come out as the header has
// them: relative to the data, and not yet checked.
func parseInfo(s *scanner, name string) (Info, error) {
	info := Info{Name: name}
	var dtype, shape, offsets bool
	once := func(seen *bool, key string) error {
		if *seen {
			return breaks(RuleDuplicate, name, "the key %q occurs twice", key)
		}
		*seen = true
		return nil
	}
	at := s.i
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "dtype":
			return cmp.Or(once(&dtype, "dtype"), parseDtype(s, &info))
		case "shape":
			return cmp.Or(once(&shape, "shape"), parseShape(s, &info))
		case "data_offsets":
			return cmp.Or(once(&offsets, "data_offsets"), parseOffsets(s, &info))
		}
		return breaks(RuleJSON, name, "unknown key %q", key)
	})
	if err == nil && !(dtype && shape && offsets) {
		err = breaks(RuleJSON, name, "the entry at byte %d of the header lacks dtype, shape or data_offsets", at)
	}
	return info, err
}

func parseDtype(s *scanner, info *Info) error {
	text, err := s.text()
	if err != nil {
		return err
	}
	if info.Dtype = dtypeByName[string(text)]; !info.Dtype.Valid() {
		return breaks(RuleDtype, info.Name, "unknown dtype %q", text)
	}
	return nil
}

func parseShape(s *scanner, info *Info) (err error) {
	info.Shape, err = parseInts(s, info.Name)
	return err
}

func parseInts(s *scanner, name string) ([]int64, error) {
	ints := make([]int64, 0, 2)
	err := s.array(func() error {
		n, err := s.uint()
		if err == nil && n > math.MaxInt64 {
			err = breaks(RuleOverflow, name, "the number %d", n)
		}
		ints = append(ints, int64(n))
		return err
	})
	return ints, err
}

func parseOffsets(s *scanner, info *Info) error {
	at := s.i
	ints, err := parseInts(s, info.Name)
	if err != nil {
		return err
	}
	if len(ints) != 2 {
		return breaks(RuleJSON, info.Name, "data_offsets at byte %d of the header has %d numbers, not 2", at, len(ints))
	}
	if ints[1] < ints[0] {
		return breaks(RuleOffsets, info.Name, "data_offsets [%d, %d] end before they begin", ints[0], ints[1])
	}
	info.Off, info.Len = ints[0], ints[1]-ints[0]
	return nil
}

// validate checks the tensors against each other and the file, and turns their
// offsets into offsets of the file.
func (f *File) validate() error {
	slices.SortFunc(f.Tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Off, b.Off), cmp.Compare(a.Len, b.Len), cmp.Compare(a.Name, b.Name))
	})
	var end int64
	for i := range f.Tensors {
		t := &f.Tensors[i]
		switch {
		case t.Off > end:
			return breaks(RuleOffsets, t.Name, "starts at %d: a hole of %d bytes before it", t.Off, t.Off-end)
		case t.Off < end:
			return breaks(RuleOffsets, t.Name, "starts at %d, inside %q", t.Off, f.Tensors[i-1].Name)
		}
		want, broken := byteSize(t.Dtype, t.Shape)
		switch {
		case broken != "":
			return breaks(broken, t.Name, "dtype %s, shape %v", t.Dtype, t.Shape)
		case want != t.Len:
			return breaks(RuleSize, t.Name, "dtype %s, shape %v give %d bytes, data_offsets %d", t.Dtype, t.Shape, want, t.Len)
		}
		end += t.Len
		t.Off += f.Data
	}
	switch have := f.Size - f.Data; {
	case have < end:
		return breaks(RuleEnd, "", "truncated: %d of %d bytes of data are there", have, end)
	case have > end:
		return breaks(RuleEnd, "", "%d bytes follow the last tensor", have-end)
	}
	return nil
}
