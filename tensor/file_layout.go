package tensor

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/culvert-io/culvert/gpu"
)

// A Source is a tensor to save. Data reads its bytes, packed and little-endian,
// from several goroutines. It may be nil if there are none.
type Source struct {
	Name  string
	Dtype Dtype
	Shape []int64
	Data  io.ReaderAt
}

// DeviceBytes returns a reader of GPU memory, for [Source]. A read that exceeds the
// span is io.ErrUnexpectedEOF and moves nothing.
func DeviceBytes(dev gpu.Device, span gpu.Span) io.ReaderAt { return deviceBytes{dev, span} }

type deviceBytes struct {
	dev  gpu.Device
	span gpu.Span
}

func (d deviceBytes) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || uint64(off) > d.span.Len || uint64(len(p)) > d.span.Len-uint64(off) {
		return 0, io.ErrUnexpectedEOF
	}
	if err := d.dev.CopyOut(p, d.span.Addr()+gpu.Addr(off)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// arrange decides where the tensors of a file lie, and encodes its header. It
// returns the sources in the order of the file.
//
// The format allows no padding between tensors, so their order decides how they are
// aligned: those whose size is a multiple of a page come first, the odd ones last.
// Then each large tensor starts on a page boundary, and every tensor on a multiple
// of its element's size. Among equals the names decide, with numbers as numbers,
// so that layers follow each other.
//
// Less than a page of data has the order of the safetensors package: by type, then by
// name. Small files are then the same, byte for byte, whichever library wrote them.
func arrange(sources []Source, metadata map[string]string) (*File, []Source, []byte, error) {
	f := &File{Metadata: metadata, Tensors: make([]Info, len(sources))}
	seen := make(map[string]bool, len(sources))
	for i, s := range sources {
		info, err := describe(s)
		if err == nil && seen[s.Name] {
			err = breaks(ruleDuplicate, "", "the name occurs twice")
		}
		if fe, ok := errors.AsType[*FormatError](err); ok {
			fe.Tensor = s.Name
		}
		if err != nil {
			return nil, nil, nil, err
		}
		seen[s.Name] = true
		info.Off = int64(i) // for now, the source's number
		f.Tensors[i] = info
	}
	order := byEvenness
	if lessThanPage(f.Tensors) {
		order = byType
	}
	slices.SortFunc(f.Tensors, order)
	sorted := make([]Source, len(sources))
	var end int64
	for i := range f.Tensors {
		t := &f.Tensors[i]
		sorted[i] = sources[t.Off]
		if t.Len > math.MaxInt64-2*maxHeader-end {
			return nil, nil, nil, breaks(ruleOverflow, t.Name, "%d bytes behind %d others", t.Len, end)
		}
		t.Off = end
		end += t.Len
	}
	header, err := f.encode(end)
	if err != nil {
		return nil, nil, nil, err
	}
	f.Data = int64(len(header))
	f.Size = f.Data + end
	for i := range f.Tensors {
		f.Tensors[i].Off += f.Data
	}
	return f, sorted, header, nil
}

// describe checks a source against the rules of the format.
func describe(s Source) (Info, error) {
	switch {
	case s.Name == metadataKey:
		return Info{}, breaks(ruleMetadata, "", "a tensor cannot have this name")
	case !utf8.ValidString(s.Name):
		return Info{}, breaks(ruleUTF8, "", "the name has invalid bytes")
	}
	n, err := s.Dtype.Size(s.Shape)
	if err != nil {
		return Info{}, err
	}
	if s.Data == nil && n > 0 {
		return Info{}, fmt.Errorf("tensor %q: Data is nil, want %d bytes", s.Name, n)
	}
	return Info{Name: s.Name, Dtype: s.Dtype, Shape: append([]int64{}, s.Shape...), Len: n}, nil
}

// encode encodes everything in front of the data: length, JSON, and spaces up to a page
// boundary. Less than a page of data cannot be moved by direct I/O anyway: it begins at a
// multiple of 8, as other libraries have it. Offsets must still be relative to the data.
func (f *File) encode(data int64) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, lengthSize))
	b.WriteByte('{')
	if f.Metadata != nil {
		for k, v := range f.Metadata {
			if !utf8.ValidString(k) || !utf8.ValidString(v) {
				return nil, breaks(ruleUTF8, "", "the metadata %q has invalid bytes", k)
			}
		}
		fmt.Fprintf(&b, `"%s":%s`, metadataKey, quote(f.Metadata))
	}
	for i, t := range f.Tensors {
		if i > 0 || f.Metadata != nil {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `%s:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, quote(t.Name), t.Dtype, shapeText(t.Shape), t.Off, t.Off+t.Len)
	}
	b.WriteByte('}')
	align := uint64(pageSize)
	if data < pageSize {
		align = lengthSize
	}
	pad := alignUp(uint64(b.Len()), align) - uint64(b.Len())
	b.Write(bytes.Repeat([]byte{' '}, int(pad)))
	n := b.Len() - lengthSize
	if n > maxHeader {
		return nil, breaks(ruleHeaderMax, "", "the header has %d bytes", n)
	}
	header := b.Bytes()
	binary.LittleEndian.PutUint64(header, uint64(n))
	return header, nil
}

// quote returns JSON of a string or a map of strings, which cannot fail.
func quote(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// lessThanPage reports whether tensors have less than a page of data together.
func lessThanPage(tensors []Info) bool {
	var n int64
	for i := range tensors {
		if n += tensors[i].Len; n >= pageSize || n < 0 {
			return false
		}
	}
	return true
}

func byEvenness(a, b Info) int {
	return cmp.Or(cmp.Compare(evenness(b.Len), evenness(a.Len)), compareNatural(a.Name, b.Name))
}

func byType(a, b Info) int {
	return cmp.Or(cmp.Compare(slices.Index(dtypeOrder, a.Dtype), slices.Index(dtypeOrder, b.Dtype)), cmp.Compare(a.Name, b.Name))
}

// evenness returns how many times 2 divides n, up to a page.
func evenness(n int64) int { return bits.TrailingZeros64(uint64(n) | pageSize) }

// compareNatural compares text with runs of digits as numbers.
func compareNatural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		nx, ny := digits(x), digits(y)
		if nx > 0 && ny > 0 {
			dx, dy := strings.TrimLeft(x[:nx], "0"), strings.TrimLeft(y[:ny], "0")
			if c := cmp.Or(cmp.Compare(len(dx), len(dy)), cmp.Compare(dx, dy)); c != 0 {
				return c
			}
			x, y = x[nx:], y[ny:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	// "01" and "1" are equal as numbers and must still have an order.
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// digits returns how many digits s starts with.
func digits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }
