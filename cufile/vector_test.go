package cufile_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
)

// A vectored read is the same as reads one after the other, for any pieces of
// any memory, also across the end of the file; and so is a write.
func TestVectorsAgainstAModel(t *testing.T) {
	const size, room = 200_000, 64 << 10
	f := newFixture(t, softConfig(), size)
	h := f.open(os.O_RDWR)
	dev, err := f.dev.Alloc(gpu.KindHost, room, 0)
	if err != nil {
		t.Fatal(err)
	}
	mems := []gpu.Span{f.buffer(room).Span(), {Base: f.alloc(room), Len: room}, {Base: dev, Len: room}}
	load := func(s gpu.Span) []byte {
		if s.Base == dev {
			return bytes.Clone(gpu.HostBytes(s.Addr(), s.Len))
		}
		return f.gpuBytes(s)
	}
	rapid.Check(t, func(rt *rapid.T) {
		var spans []gpu.Span
		var total uint64
		for i := range rapid.IntRange(0, 12).Draw(rt, "pieces") {
			n := uint64(rapid.IntRange(0, 5000).Draw(rt, "length"))
			// Pieces of one memory do not overlap.
			spans = append(spans, mems[rapid.IntRange(0, 2).Draw(rt, "memory")].Slice(uint64(i)*5100+uint64(rapid.IntRange(0, 99).Draw(rt, "at")), n))
			total += n
		}
		off := int64(rapid.IntRange(0, size+5000).Draw(rt, "offset"))
		if rapid.Bool().Draw(rt, "write") {
			var want []byte
			for _, s := range spans {
				want = append(want, load(s)...)
			}
			off %= size - 60_000
			if r, err := h.WritevAt(context.Background(), spans, off); err != nil || uint64(r.Bytes) != total {
				rt.Fatalf("%v, %v", &r, err)
			}
			copy(f.data[off:], want)
		}
		r, err := h.ReadvAt(context.Background(), spans, off)
		want := f.data[min(off, size):min(off+int64(total), size)]
		if err != nil || r.Bytes != int64(len(want)) {
			rt.Fatalf("%v, %v, want %d bytes", &r, err, len(want))
		}
		var got []byte
		for _, s := range spans {
			got = append(got, load(s)...)
		}
		if !bytes.Equal(got[:len(want)], want) {
			rt.Fatal("wrong bytes")
		}
	})
	if got, err := os.ReadFile(f.path); err != nil || !bytes.Equal(got, f.data) {
		t.Errorf("the file differs from the model, %v", err)
	}
}

func TestVectorErrors(t *testing.T) {
	f := newFixture(t, softConfig(), 10_000)
	h := f.open(os.O_RDONLY)
	buf := f.buffer(65536)
	good := buf.Span().Slice(0, 100)
	ctx := context.Background()
	for name, c := range map[string]struct {
		spans []gpu.Span
		off   int64
		want  cufile.Code
	}{
		"nothing":              {nil, 0, cufile.Success},
		"empty pieces":         {[]gpu.Span{good.Slice(0, 0), good, good.Slice(5, 0)}, 0, cufile.Success},
		"negative offset":      {[]gpu.Span{good}, -1, cufile.InvalidValue},
		"a null piece":         {[]gpu.Span{good, {Len: 5}}, 0, cufile.InvalidValue},
		"past a buffer":        {[]gpu.Span{good, {Base: buf.Span().Base, Off: 65530, Len: 10}}, 0, cufile.InvalidMappingRange},
		"the offsets overflow": {[]gpu.Span{good, good}, math.MaxInt64 - 150, cufile.InvalidValue},
	} {
		if err := f.dev.Fill(buf.Span().Base, 0xAB, 1, 65536); err != nil {
			t.Fatal(err)
		}
		r, err := h.ReadvAt(ctx, c.spans, c.off)
		if cufile.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err != nil && (r.Bytes != 0 || f.gpuBytes(good)[0] != 0xAB) {
			t.Errorf("%s: something was moved: %v", name, &r)
		}
	}
	if _, err := h.WritevAt(ctx, []gpu.Span{good}, 0); cufile.CodeOf(err) != cufile.InvalidFileOpenFlag {
		t.Errorf("a write to a read-only file: %v", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if r, err := h.ReadvAt(done, []gpu.Span{good, good}, 0); !errors.Is(err, context.Canceled) || r.Bytes != 0 {
		t.Errorf("cancelled: %v, %v", &r, err)
	}
	h.Close()
	if _, err := h.ReadvAt(ctx, []gpu.Span{good}, 0); cufile.CodeOf(err) != cufile.HandleNotRegistered {
		t.Errorf("a closed handle: %v", err)
	}
}
