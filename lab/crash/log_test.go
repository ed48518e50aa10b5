package crash

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// write is one entry as the drive saw it.
type loggedWrite struct {
	sector uint64
	data   []byte
	flags  uint64
	count  uint64 // of a discard
}

// encode lays a log out by the format's description.
func encode(sector int, ws []loggedWrite) []byte {
	le := binary.LittleEndian
	pad := func(b []byte) []byte { return append(b, make([]byte, -len(b)&(sector-1))...) }
	b := le.AppendUint64(nil, 0x6a736677736872)
	b = le.AppendUint64(b, 1)
	b = le.AppendUint64(b, uint64(len(ws)))
	b = pad(le.AppendUint32(b, uint32(sector)))
	for _, w := range ws {
		count := w.count + uint64(len(w.data)/sector)
		for _, v := range []uint64{w.sector, count, uint64(w.flags), 0} {
			b = le.AppendUint64(b, v)
		}
		b = append(pad(b), w.data...)
	}
	return b
}

// disk is a target in memory.
type disk []byte

func (d disk) WriteAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > int64(len(d)) {
		return 0, errors.New("beyond the end")
	}
	return copy(d[off:], p), nil
}

func (d disk) Discard(off, n int64) error {
	clear(d[off : off+n])
	return nil
}

func TestLogEntries(t *testing.T) {
	const s = 512
	l, err := openLog(bytes.NewReader(encode(s, []loggedWrite{
		{sector: 1, data: bytes.Repeat([]byte{1}, 2*s)},
		{flags: flagFlush},
		{sector: 2, count: 3, flags: flagDiscard},
		{sector: 4, data: bytes.Repeat([]byte{2}, s), flags: flagFUA},
		{flags: flagMark},
	})))
	if err != nil {
		t.Fatal(err)
	}
	n, err := l.length()
	if n != 5 || err != nil {
		t.Fatalf("Len = %d, %v", n, err)
	}
	got, err := l.entries(n)
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{
		{off: s, len: 2 * s},
		{flags: flagFlush},
		{off: 2 * s, len: 3 * s, flags: flagDiscard},
		{off: 4 * s, len: s, flags: flagFUA},
		{flags: flagMark},
	}
	if diff := cmp.Diff(want, got, cmp.Transformer("entry", func(e entry) [3]int64 { return [3]int64{e.off, e.len, int64(e.flags)} })); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	var durable []bool
	for _, e := range got {
		durable = append(durable, e.durable())
	}
	if diff := cmp.Diff([]bool{false, true, false, true, false}, durable); diff != "" {
		t.Errorf("durable (-want +got):\n%s", diff)
	}
}

// Applying a log gives what the writes gave.
func TestLogApply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sector := rapid.SampledFrom([]int{512, 4096}).Draw(t, "sector")
		const sectors = 16
		var ws []loggedWrite
		want := make(disk, sectors*sector)
		for range rapid.IntRange(0, 12).Draw(t, "writes") {
			at := rapid.IntRange(0, sectors-1).Draw(t, "at")
			n := rapid.IntRange(0, sectors-at).Draw(t, "n")
			w := loggedWrite{sector: uint64(at)}
			if rapid.Bool().Draw(t, "discard") {
				w.flags, w.count = flagDiscard, uint64(n)
				want.Discard(int64(at*sector), int64(n*sector))
			} else {
				w.data = bytes.Repeat([]byte{rapid.Byte().Draw(t, "fill")}, n*sector)
				want.WriteAt(w.data, int64(at*sector))
			}
			ws = append(ws, w)
		}
		l, err := openLog(bytes.NewReader(encode(sector, ws)))
		if err != nil {
			t.Fatal(err)
		}
		es, err := l.entries(len(ws))
		if err != nil {
			t.Fatal(err)
		}
		got := make(disk, len(want))
		for _, e := range es {
			if err := l.apply(e, got); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Error("the drive differs")
		}
	})
}

func TestLogRefuses(t *testing.T) {
	good := encode(512, []loggedWrite{{sector: 0, data: make([]byte, 512)}})
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for name, b := range map[string][]byte{
		"magic": change(0, 0), "version": change(8, 2), "sector size": change(24, 1),
	} {
		if _, err := openLog(bytes.NewReader(b)); !errors.Is(err, errFormat) {
			t.Errorf("wrong %s: %v", name, err)
		}
	}
	if _, err := openLog(bytes.NewReader(good[:20])); err == nil {
		t.Error("a head of 20 bytes was accepted")
	}
	for name, b := range map[string][]byte{"offset": change(512+7, 0xff), "length": change(512+15, 0xff), "size": change(512+11, 0xff)} {
		l, err := openLog(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.entries(1); !errors.Is(err, errFormat) {
			t.Errorf("wild %s: %v", name, err)
		}
	}
	l, _ := openLog(bytes.NewReader(good[:600]))
	if _, err := l.entries(2); err == nil {
		t.Error("an entry beyond the end was read")
	}
	es, err := l.entries(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.apply(es[0], make(disk, 512)); err == nil {
		t.Error("missing data was applied")
	}
}

func FuzzLog(f *testing.F) {
	f.Add(encode(512, []loggedWrite{{sector: 1, data: make([]byte, 1024)}, {flags: flagFlush}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := openLog(bytes.NewReader(b))
		if err != nil {
			return
		}
		n, err := l.length()
		if err != nil {
			t.Fatal(err)
		}
		es, err := l.entries(min(max(n, 0), 100))
		if err != nil {
			return
		}
		for _, e := range es {
			if e.off < 0 || e.len < 0 {
				t.Fatalf("entry %+v", e)
			}
		}
	})
}
