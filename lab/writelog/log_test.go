package writelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// write is one entry as the drive saw it.
type write struct {
	sector uint64
	data   []byte
	flags  Flags
	count  uint64 // of a discard
}

// encode lays a log out by the format's description.
func encode(sector int, ws []write) []byte {
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

// disk is a Target in memory.
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

func TestEntries(t *testing.T) {
	const s = 512
	l, err := Open(bytes.NewReader(encode(s, []write{
		{sector: 1, data: bytes.Repeat([]byte{1}, 2*s)},
		{flags: Flush},
		{sector: 2, count: 3, flags: Discard},
		{sector: 4, data: bytes.Repeat([]byte{2}, s), flags: FUA},
		{flags: Mark},
	})))
	if err != nil {
		t.Fatal(err)
	}
	n, err := l.Len()
	if n != 5 || err != nil {
		t.Fatalf("Len = %d, %v", n, err)
	}
	got, err := l.Entries(n)
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{
		{Off: s, Len: 2 * s},
		{Flags: Flush},
		{Off: 2 * s, Len: 3 * s, Flags: Discard},
		{Off: 4 * s, Len: s, Flags: FUA},
		{Flags: Mark},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Entry{})); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	var durable []bool
	for _, e := range got {
		durable = append(durable, e.Durable())
	}
	if diff := cmp.Diff([]bool{false, true, false, true, false}, durable); diff != "" {
		t.Errorf("durable (-want +got):\n%s", diff)
	}
}

// Applying a log gives what the writes gave.
func TestApply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sector := rapid.SampledFrom([]int{512, 4096}).Draw(t, "sector")
		const sectors = 16
		var ws []write
		want := make(disk, sectors*sector)
		for range rapid.IntRange(0, 12).Draw(t, "writes") {
			at := rapid.IntRange(0, sectors-1).Draw(t, "at")
			n := rapid.IntRange(0, sectors-at).Draw(t, "n")
			w := write{sector: uint64(at)}
			if rapid.Bool().Draw(t, "discard") {
				w.flags, w.count = Discard, uint64(n)
				want.Discard(int64(at*sector), int64(n*sector))
			} else {
				w.data = bytes.Repeat([]byte{rapid.Byte().Draw(t, "fill")}, n*sector)
				want.WriteAt(w.data, int64(at*sector))
			}
			ws = append(ws, w)
		}
		l, err := Open(bytes.NewReader(encode(sector, ws)))
		if err != nil {
			t.Fatal(err)
		}
		es, err := l.Entries(len(ws))
		if err != nil {
			t.Fatal(err)
		}
		got := make(disk, len(want))
		for _, e := range es {
			if err := l.Apply(e, got); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Error("the drive differs")
		}
	})
}

func TestRefuses(t *testing.T) {
	good := encode(512, []write{{sector: 0, data: make([]byte, 512)}})
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for name, b := range map[string][]byte{
		"magic": change(0, 0), "version": change(8, 2), "sector size": change(24, 1),
	} {
		if _, err := Open(bytes.NewReader(b)); !errors.Is(err, ErrFormat) {
			t.Errorf("wrong %s: %v", name, err)
		}
	}
	if _, err := Open(bytes.NewReader(good[:20])); err == nil {
		t.Error("a head of 20 bytes was accepted")
	}
	for name, b := range map[string][]byte{"offset": change(512+7, 0xff), "length": change(512+15, 0xff), "size": change(512+11, 0xff)} {
		l, err := Open(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Entries(1); !errors.Is(err, ErrFormat) {
			t.Errorf("wild %s: %v", name, err)
		}
	}
	l, _ := Open(bytes.NewReader(good[:600]))
	if _, err := l.Entries(2); err == nil {
		t.Error("an entry beyond the end was read")
	}
	es, err := l.Entries(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Apply(es[0], make(disk, 512)); err == nil {
		t.Error("missing data was applied")
	}
}

func FuzzLog(f *testing.F) {
	f.Add(encode(512, []write{{sector: 1, data: make([]byte, 1024)}, {flags: Flush}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := Open(bytes.NewReader(b))
		if err != nil {
			return
		}
		n, err := l.Len()
		if err != nil {
			t.Fatal(err)
		}
		es, err := l.Entries(min(max(n, 0), 100))
		if err != nil {
			return
		}
		for _, e := range es {
			if e.Off < 0 || e.Len < 0 {
				t.Fatalf("entry %+v", e)
			}
		}
	})
}
