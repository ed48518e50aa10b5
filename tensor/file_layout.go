package tensor

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"unicode/utf8"

	"github.com/culvert-io/culvert/gpu"
)

// A Source is a tensor to be saved. Data gives its bytes, packed and
// little-endian, and is read from several goroutines at a time. It may be nil
// where there are none.
type Source struct {
	Name  string
	Dtype Dtype
	Shape []int64
	Data  io.ReaderAt
}

// DeviceBytes reads GPU memory, for [Source]. A read that leaves the span is
// io.ErrUnexpectedEOF and moves nothing.
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

// arrange decides where the tensors of a file lie, and makes its header. The
// sources come back in the order of the file.
//
// The format allows no padding between tensors, so their order decides how they
// are aligned: those whose size is a multiple of a page come first, the odd ones
// last. Then each large tensor starts on a page border, and every tensor on a
// multiple of its element's size. Among equals the names decide, numbers in
// them as numbers, so that layers follow each other.
func arrange(sources []Source, metadata map[string]string) (*File, []Source, []byte, error) {
	f := &File{Metadata: metadata, Tensors: make([]Info, len(sources))}
	seen := make(map[string]bool, len(sources))
	for i, s := range sources {
		info, err := describe(s)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("saving tensor %q: %w", s.Name, err)
		}
		if seen[s.Name] {
			return nil, nil, nil, fmt.Errorf("saving tensor %q: %w", s.Name, RuleDuplicate)
		}
		seen[s.Name] = true
		// For now the offset is the source's number.
		info.Off = int64(i)
		f.Tensors[i] = info
	}
	slices.SortFunc(f.Tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(evenness(b.Len), evenness(a.Len)), compareNatural(a.Name, b.Name))
	})
	sorted := make([]Source, len(sources))
	var end int64
	for i := range f.Tensors {
		t := &f.Tensors[i]
		sorted[i] = sources[t.Off]
		if t.Len > math.MaxInt64-2*MaxHeader-end {
			return nil, nil, nil, fmt.Errorf("saving tensor %q: %w", t.Name, RuleOverflow)
		}
		t.Off = end
		end += t.Len
	}
	header, err := f.encode()
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
		return Info{}, RuleMetadata
	case !utf8.ValidString(s.Name):
		return Info{}, RuleUTF8
	case !s.Dtype.Valid():
		return Info{}, RuleDtype
	}
	for _, dim := range s.Shape {
		if dim < 0 {
			return Info{}, fmt.Errorf("shape %v: %w", s.Shape, RuleJSON)
		}
	}
	n, broken := byteSize(s.Dtype, s.Shape)
	if broken != "" {
		return Info{}, fmt.Errorf("dtype %v, shape %v: %w", s.Dtype, s.Shape, broken)
	}
	if s.Data == nil && n > 0 {
		return Info{}, fmt.Errorf("its Data is nil, and it has %d bytes", n)
	}
	return Info{Name: s.Name, Dtype: s.Dtype, Shape: append([]int64{}, s.Shape...), Len: n}, nil
}

// encode makes everything in front of the data: length, JSON, and spaces up to
// a page border. Offsets must still be relative to the data.
func (f *File) encode() ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, lengthSize))
	b.WriteByte('{')
	if len(f.Metadata) > 0 {
		for k, v := range f.Metadata {
			if !utf8.ValidString(k) || !utf8.ValidString(v) {
				return nil, fmt.Errorf("saving metadata %q: %w", k, RuleUTF8)
			}
		}
		b.Write(quote(metadataKey))
		b.WriteByte(':')
		b.Write(quote(f.Metadata))
	}
	for i, t := range f.Tensors {
		if i > 0 || len(f.Metadata) > 0 {
			b.WriteByte(',')
		}
		b.Write(quote(t.Name))
		fmt.Fprintf(&b, `:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, t.Dtype, shapeText(t.Shape), t.Off, t.Off+t.Len)
	}
	b.WriteByte('}')
	pad := alignUp(uint64(b.Len()), pageSize) - uint64(b.Len())
	b.Write(bytes.Repeat([]byte{' '}, int(pad)))
	n := b.Len() - lengthSize
	if n > MaxHeader {
		return nil, fmt.Errorf("saving a header of %d bytes: %w", n, RuleHeaderMax)
	}
	header := b.Bytes()
	binary.LittleEndian.PutUint64(header, uint64(n))
	return header, nil
}

// quote is JSON of a string or a map of strings, which cannot fail.
func quote(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// evenness is how many times 2 divides n, up to a page.
func evenness(n int64) int { return bits.TrailingZeros64(uint64(n) | pageSize) }

// compareNatural compares text with runs of digits taken as numbers.
func compareNatural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		nx, ny := digits(x), digits(y)
		if nx > 0 && ny > 0 {
			dx, dy := trimZeros(x[:nx]), trimZeros(y[:ny])
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

// digits is how many digits s starts with.
func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

func trimZeros(s string) string {
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return s
}
