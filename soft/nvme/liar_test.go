package nvme_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/nvme"
)

// TestLies: each lie is reported as a success, and the bytes are wrong in the way that
// its name says, in as many blocks as were asked for.
func TestLies(t *testing.T) {
	const block, n = 512, 8 // blocks of a transfer
	r := newRaw(t, options{})
	r.enable(8)
	q := r.queue(1, 8)
	data := r.alloc(2)
	b := r.mem[data:][:n*block]
	fill := func(seed byte) []byte {
		for i := range b {
			b[i] = seed + byte(i/block)
		}
		return bytes.Clone(b)
	}
	const lba = 4
	for _, c := range []struct {
		lie         nvme.Lie
		n           int // of the transfer
		read, write []byte
	}{
		// The medium has the blocks 10, 11, …; memory has 90, 91, … before a read, and 50,
		// 51, … for a write.
		{nvme.Drop, n, seq(90, n), seq(10, n)},
		{nvme.Delay, n, seq(90, n), seq(10, n)},
		{nvme.Misdirect, n, append(seq(11, n-1), 10), append(seq(51, n-1), 50)},
		{nvme.Duplicate, n, bytes.Repeat([]byte{10}, n), bytes.Repeat([]byte{50}, n)},
		{nvme.Transform, n, xor(seq(10, n)), xor(seq(50, n))},
		{nvme.Drop, 1, seq(90, 1), seq(10, 1)},
		{nvme.Misdirect, 1, seq(11, 1), seq(10, 1)},
		{nvme.Transform, 1, xor(seq(10, 1)), xor(seq(50, 1))},
	} {
		name := fmt.Sprintf("%s of %d blocks", c.lie, c.n)
		fill(10)
		q.status(name, r.rw(abi.NVM_WRITE, lba, n, data), abi.SUCCESS)
		fill(90)
		liar := &nvme.Liar{OneIn: 1, Lies: []nvme.Lie{c.lie}}
		r.c.Lie(liar)
		q.status(name, r.rw(abi.NVM_READ, lba, uint32(c.n), data), abi.SUCCESS)
		if got := firsts(b[:c.n*block]); !bytes.Equal(got, c.read) {
			t.Errorf("%s: read %d, want %d", name, got, c.read)
		}
		r.c.Lie(nil) // what was delayed arrives
		if c.lie == nvme.Delay && !bytes.Equal(firsts(b), seq(10, n)) {
			t.Errorf("%s: after the delay %d", name, firsts(b))
		}
		fill(50)
		r.c.Lie(liar)
		q.status(name, r.rw(abi.NVM_WRITE, lba, uint32(c.n), data), abi.SUCCESS)
		r.c.Lie(nil)
		q.status(name, r.rw(abi.NVM_READ, lba, uint32(c.n), data), abi.SUCCESS)
		if got := firsts(b[:c.n*block]); !bytes.Equal(got, c.write) {
			t.Errorf("%s: wrote %d, want %d", name, got, c.write)
		}
		if liar.Told() != 2 {
			t.Errorf("%s: %d lies, want 2", name, liar.Told())
		}
	}
}

// TestLiarIsRare: one in so many transfers is a lie, the same ones for the same seed.
func TestLiarIsRare(t *testing.T) {
	const transfers, block, n = 400, 512, 8
	lies := func(seed uint64) (which []int) {
		r := newRaw(t, options{})
		r.enable(8)
		q := r.queue(1, 8)
		data := r.alloc(2)
		b := r.mem[data:][:n*block]
		r.c.Lie(&nvme.Liar{OneIn: 20, Seed: seed, Lies: []nvme.Lie{nvme.Transform}, Blocks: 1})
		for i := range transfers {
			clear(b)
			q.status("read", r.rw(abi.NVM_READ, 0, n, data), abi.SUCCESS)
			if wrong := n - bytes.Count(firsts(b), []byte{0}); wrong > 1 {
				t.Errorf("%d blocks are wrong, want 1", wrong)
			} else if wrong == 1 {
				which = append(which, i)
			}
		}
		return which
	}
	first := lies(7)
	if len(first) < 8 || len(first) > 40 {
		t.Errorf("%d lies in %d transfers, want about one in 20", len(first), transfers)
	}
	if again := lies(7); !slices.Equal(first, again) {
		t.Errorf("the same seed lies at %v and at %v", first, again)
	}
	if other := lies(8); slices.Equal(first, other) {
		t.Error("another seed tells the same lies")
	}
}

func TestParseLiar(t *testing.T) {
	l, err := nvme.ParseLiar("drop+transform:100:2", 7)
	if err != nil || l.OneIn != 100 || l.Blocks != 2 || l.Seed != 7 || !slices.Equal(l.Lies, []nvme.Lie{nvme.Drop, nvme.Transform}) {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err := nvme.ParseLiar("any", 0); err != nil || l.OneIn != 1 || l.Lies != nil {
		t.Errorf("any: %+v, %v", l, err)
	}
	for _, bad := range []string{"", "flatter", "drop:0", "drop:x", "drop:1:0", "drop:1:1:1"} {
		if _, err := nvme.ParseLiar(bad, 0); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// firsts are the first bytes of the blocks.
func firsts(b []byte) (list []byte) {
	for i := 0; i < len(b); i += 512 {
		list = append(list, b[i])
	}
	return list
}

func seq(from byte, n int) (list []byte) {
	for i := range n {
		list = append(list, from+byte(i))
	}
	return list
}

func xor(b []byte) []byte {
	for i := range b {
		b[i] ^= 0xa5
	}
	return b
}
