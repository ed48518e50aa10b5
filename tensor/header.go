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

	"github.com/culvert-io/culvert/internal/object"
)

const (
	maxHeader   = 100_000_000 // the format's limit on the JSON header, in bytes
	lengthSize  = 8           // of the header's length, in front of it
	metadataKey = "__metadata__"
)

// A File is a safetensors file whose header was read and checked.
type File struct {
	Path     string
	Size     int64
	Data     int64 // offset of the first tensor
	Metadata map[string]string
	Tensors  []Info // by offset

	stat os.FileInfo // of the file when it was read; nil in tests
}

// An Info describes one tensor of a file.
type Info struct {
	Name  string  `json:"name"`
	Dtype Dtype   `json:"dtype"`
	Shape []int64 `json:"shape"`
	Off   int64   `json:"offset"` // of its first byte, from the start of the file
	Len   int64   `json:"bytes"`
	File  int     `json:"-"` // in Model.Files
}

// ErrChanged reports a file that is no longer the one whose header was read.
var ErrChanged = errors.New("the file was replaced or changed since its header was read")

// openFile reads and checks the header of a safetensors file. The file does not
// stay open.
func openFile(path string) (*File, error) {
	f, err := openStored(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h, err := readFile(f)
	if err != nil {
		return nil, err
	}
	h.Path = path
	return h, nil
}

// readFile reads and checks the header of an open safetensors file.
func readFile(f stored) (*File, error) {
	path := f.Name()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	h, err := readHeader(f, st.Size())
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

// check returns ErrChanged unless the file is still the one whose header was read.
// It compares no inodes: file systems that fetch objects over the network number
// them anew.
func (f *File) check() error {
	if f.stat == nil {
		return nil
	}
	st, err := statStored(f.Path)
	if err != nil {
		return err
	}
	if st.Size() != f.stat.Size() || !st.ModTime().Equal(f.stat.ModTime()) || etag(st) != etag(f.stat) {
		return fmt.Errorf("%s: %w: open it again", object.Redact(f.Path), ErrChanged)
	}
	return nil
}

// readHeader reads and checks the header of a safetensors file of the given size.
// Every byte behind the header must belong to exactly one tensor. Errors are of
// type *FormatError unless r failed.
func readHeader(r io.ReaderAt, size int64) (*File, error) {
	if size < lengthSize {
		return nil, breaks(ruleLength, "", "the file has %d bytes", size)
	}
	var length [lengthSize]byte
	if err := readFull(r, length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		return nil, breaks(ruleHeaderMax, "", "not a safetensors file, or a broken one: the header claims %d bytes", n)
	}
	if int64(n) > size-lengthSize {
		return nil, breaks(ruleHeaderEnd, "", "the header claims %d bytes, %d follow", n, size-lengthSize)
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

// readFull fills p. A file that ends early is an error.
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
		return breaks(ruleUTF8, "", "the header has invalid bytes")
	}
	s := &scanner{b: text}
	seen := make(map[string]struct{})
	err := s.object(func(key []byte) error {
		name := string(key)
		if _, ok := seen[name]; ok {
			return breaks(ruleDuplicate, name, "the name occurs twice")
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
		return breaks(ruleJSON, "", "%v", se)
	}
	return err
}

func (f *File) parseMetadata(s *scanner) error {
	f.Metadata = make(map[string]string)
	if s.peek() != '{' {
		return breaks(ruleMetadata, "", "__metadata__ is not an object at byte %d of the header", s.i)
	}
	return s.object(func(k []byte) error {
		key := string(k)
		if _, ok := f.Metadata[key]; ok {
			return breaks(ruleDuplicate, "", "the key %q of __metadata__ occurs twice", key)
		}
		if s.peek() != '"' {
			return breaks(ruleMetadata, "", "the value of %q is not a string at byte %d of the header", key, s.i)
		}
		v, err := s.text()
		f.Metadata[key] = string(v)
		return err
	})
}

// parseInfo reads a tensor's entry. Off and Len are as in the header: relative to
// the data, and not yet checked.
func parseInfo(s *scanner, name string) (Info, error) {
	info := Info{Name: name}
	var dtype, shape, offsets bool
	at := s.i
	err := s.object(func(key []byte) (err error) {
		twice := false
		switch string(key) {
		case "dtype":
			twice, dtype = dtype, true
			err = parseDtype(s, &info)
		case "shape":
			twice, shape = shape, true
			info.Shape, err = parseInts(s, name)
		case "data_offsets":
			twice, offsets = offsets, true
			err = parseOffsets(s, &info)
		default:
			return breaks(ruleJSON, name, "unknown key %q", key)
		}
		if twice {
			return breaks(ruleDuplicate, name, "the key %q occurs twice", key)
		}
		return err
	})
	if err == nil && !(dtype && shape && offsets) {
		err = breaks(ruleJSON, name, "the entry at byte %d of the header lacks dtype, shape or data_offsets", at)
	}
	return info, err
}

func parseDtype(s *scanner, info *Info) error {
	text, err := s.text()
	if err != nil {
		return err
	}
	if info.Dtype = Dtype(text); !info.Dtype.Valid() {
		return breaks(ruleDtype, info.Name, "unknown dtype %q", text)
	}
	return nil
}

func parseInts(s *scanner, name string) ([]int64, error) {
	ints := make([]int64, 0, 2)
	err := s.array(func() error {
		n, err := s.uint()
		if err == nil && n > math.MaxInt64 {
			err = breaks(ruleOverflow, name, "the number %d", n)
		}
		ints = append(ints, int64(n))
		return err
	})
	return ints, err
}

func parseOffsets(s *scanner, info *Info) error {
	at := s.i
	ints, err := parseInts(s, info.Name)
	switch {
	case err != nil:
		return err
	case len(ints) != 2:
		return breaks(ruleJSON, info.Name, "data_offsets at byte %d of the header has %d numbers, not 2", at, len(ints))
	case ints[1] < ints[0]:
		return breaks(ruleOffsets, info.Name, "data_offsets [%d, %d] end before they begin", ints[0], ints[1])
	}
	info.Off, info.Len = ints[0], ints[1]-ints[0]
	return nil
}

// validate checks the tensors against each other and the file, and turns their
// offsets into offsets in the file.
func (f *File) validate() error {
	slices.SortFunc(f.Tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Off, b.Off), cmp.Compare(a.Len, b.Len), cmp.Compare(a.Name, b.Name))
	})
	var end int64
	for i := range f.Tensors {
		t := &f.Tensors[i]
		switch {
		case t.Off > end:
			return breaks(ruleOffsets, t.Name, "starts at %d: a hole of %d bytes before it", t.Off, t.Off-end)
		case t.Off < end:
			return breaks(ruleOffsets, t.Name, "starts at %d, inside %q", t.Off, f.Tensors[i-1].Name)
		}
		want, err := t.Dtype.Size(t.Shape)
		if fe, ok := errors.AsType[*FormatError](err); ok {
			fe.Tensor = t.Name
			return fe
		}
		if want != t.Len {
			return breaks(ruleSize, t.Name, "dtype %s, shape %v give %d bytes, data_offsets %d", t.Dtype, t.Shape, want, t.Len)
		}
		end += t.Len
		t.Off += f.Data
	}
	switch have := f.Size - f.Data; {
	case have < end:
		return breaks(ruleEnd, "", "truncated: %d of %d bytes of data are there", have, end)
	case have > end:
		return breaks(ruleEnd, "", "%d bytes follow the last tensor", have-end)
	}
	return nil
}
