package kernels_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"regexp"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/internal/ptx"
)

func TestPTXAgreesWithPairs(t *testing.T) {
	entries, err := ptx.Parse(kernels.PTX)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
		k, ok := kernels.Lookup(e.Name)
		if !ok {
			t.Errorf("kernel %s has no Go half", e.Name)
			continue
		}
		if diff := cmp.Diff(e.Params, k.Params); diff != "" {
			t.Errorf("parameters of %s (-ptx +go):\n%s", e.Name, diff)
		}
		if k.Name != e.Name {
			t.Errorf("Lookup(%s) is called %s", e.Name, k.Name)
		}
	}
	if diff := cmp.Diff(names, kernels.Names()); diff != "" {
		t.Errorf("kernels (-ptx +go):\n%s", diff)
	}
}

func TestSourceAgreesWithPairs(t *testing.T) {
	src, err := os.ReadFile("kernels.cu")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^extern "C" __global__ void (\w+)\(`).FindAllSubmatch(src, -1) {
		names = append(names, string(m[1]))
	}
	if diff := cmp.Diff(names, kernels.Names()); diff != "" {
		t.Errorf("kernels (-source +go):\n%s", diff)
	}
}

// Old drivers must be able to read the text.
func TestPTXVersion(t *testing.T) {
	for _, want := range []string{"\n.version 8.0\n", "\n.target sm_70\n", "\n.address_size 64\n"} {
		if !bytes.Contains(kernels.PTX, []byte(want)) {
			t.Errorf("no %q in the PTX", want)
		}
	}
}

func TestLookupUnknown(t *testing.T) {
	if _, ok := kernels.Lookup("culvert_nothing"); ok {
		t.Error("found a kernel that does not exist")
	}
}

// The examples of RFC 3720, B.4, and the check value of the CRC catalogues.
func TestCRC32C(t *testing.T) {
	ascending, descending := make([]byte, 32), make([]byte, 32)
	for i := range ascending {
		ascending[i], descending[i] = byte(i), byte(31-i)
	}
	iscsiRead := make([]byte, 48) // the RFC's read command PDU
	copy(iscsiRead, []byte{0x01, 0xc0})
	copy(iscsiRead[16:], []byte{0x14, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02})
	for _, tt := range []struct {
		name string
		data []byte
		want uint32
	}{
		{"nothing", nil, 0},
		{"123456789", []byte("123456789"), 0xe3069283},
		{"32 zeroes", make([]byte, 32), 0x8a9136aa},
		{"32 ones", bytes.Repeat([]byte{0xff}, 32), 0x62a8ab43},
		{"ascending", ascending, 0x46dd794e},
		{"descending", descending, 0x113fdb5c},
		{"iSCSI read", iscsiRead, 0xd9963a56},
	} {
		m := newMemory(256)
		copy(m.data[33:], tt.data)
		m.run(t, "culvert_crc32c", m.at(33), uint64(len(tt.data)), m.at(128))
		if got := binary.LittleEndian.Uint32(m.data[128:]); got != tt.want {
			t.Errorf("%s: %08x, want %08x", tt.name, got, tt.want)
		}
	}
}

func TestStrrev(t *testing.T) {
	for _, name := range []string{"strrev", "culvert_strrev"} {
		for text, want := range map[string]string{"": "", "a": "a", "ab": "ba", "Hello, GPU!": "!UPG ,olleH"} {
			m := newMemory(64)
			copy(m.data[5:], text)
			m.run(t, name, m.at(5), m.at(32))
			if got := string(m.data[5 : 5+len(text)]); got != want || m.data[5+len(text)] != 0 {
				t.Errorf("%s(%q) = %q", name, text, got)
			}
			if n := binary.LittleEndian.Uint32(m.data[32:]); n != uint32(len(text)) {
				t.Errorf("%s(%q): length %d", name, text, n)
			}
		}
	}
}

func TestCounterCountsThreads(t *testing.T) {
	m := newMemory(16)
	binary.LittleEndian.PutUint32(m.data[4:], 5)
	if err := m.launch("culvert_counter", gpu.Dim{X: 512}, gpu.Dim{X: 1000}, m.at(4)); err != nil {
		t.Fatal(err)
	}
	if got := binary.LittleEndian.Uint32(m.data[4:]); got != 512005 {
		t.Errorf("got %d", got)
	}
	if err := m.launch("culvert_counter", gpu.Dim{Y: 3}, gpu.Dim{X: 2, Z: 4}, m.at(8)); err != nil {
		t.Fatal(err)
	}
	if got := binary.LittleEndian.Uint32(m.data[8:]); got != 24 {
		t.Errorf("got %d in three dimensions", got)
	}
}

// whole is memory in one segment, as page frames are: there a word is atomic.
type whole struct{ *memory }

func (w whole) Bytes(a gpu.Addr, n uint64) ([][]byte, error) {
	off := uint64(a - w.base)
	return [][]byte{w.data[off : off+n]}, nil
}

func TestResultsAreAtomic(t *testing.T) {
	m := newMemory(64)
	m.data[40] = 1
	w := whole{m}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				for name, args := range map[string][]uint64{
					"culvert_counter": {m.at(0)},
					"culvert_sum":     {m.at(40), 1, m.at(8)},
					"culvert_compare": {m.at(40), m.at(48), 1, m.at(16)},
				} {
					k, _ := kernels.Lookup(name)
					if err := k.Run(kernels.Launch{Grid: gpu.Dim{X: 1}, Block: gpu.Dim{X: 1}, Args: args, Mem: w}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for off, name := range map[int]string{0: "counter", 8: "sum", 16: "compare"} {
		if got := binary.LittleEndian.Uint64(m.data[off:]); got != 4000 {
			t.Errorf("%s: %d, want 4000", name, got)
		}
	}
}

func TestBadLaunches(t *testing.T) {
	m := newMemory(1 << 10)
	for i := range m.data {
		m.data[i] = 'x' // no NUL anywhere
	}
	table := kernels.Segment{Src: m.at(0), Dst: 0, Len: 1 << 20}.Append(nil)
	copy(m.data[512:], table)
	for _, tt := range []struct {
		name string
		args []uint64
		want gpu.Code
	}{
		{"culvert_strrev", []uint64{m.at(600), m.at(0)}, gpu.ErrIllegalAddress},
		{"culvert_counter", nil, gpu.ErrInvalidValue},
		{"culvert_counter", []uint64{1, 2}, gpu.ErrInvalidValue},
		{"culvert_counter", []uint64{0}, gpu.ErrIllegalAddress},
		{"culvert_counter", []uint64{m.at(2)}, gpu.ErrMisalignedAddress},
		{"culvert_sum", []uint64{m.at(0), 1025, m.at(0)}, gpu.ErrIllegalAddress},
		{"culvert_sum", []uint64{m.at(0), 1 << 63, m.at(0)}, gpu.ErrIllegalAddress},
		{"culvert_sum", []uint64{m.at(0), 1<<64 - 1, m.at(0)}, gpu.ErrIllegalAddress},
		{"culvert_sum", []uint64{m.at(0), 8, m.at(4)}, gpu.ErrMisalignedAddress},
		{"culvert_sum", []uint64{m.at(0), 8, 0}, gpu.ErrIllegalAddress},
		{"culvert_fill", []uint64{m.at(1), 1024, 0}, gpu.ErrIllegalAddress},
		{"culvert_compare", []uint64{m.at(0), 0, 8, m.at(0)}, gpu.ErrIllegalAddress},
		{"culvert_compare", []uint64{0, m.at(0), 8, m.at(0)}, gpu.ErrIllegalAddress},
		{"culvert_crc32c", []uint64{m.at(1020), 8, m.at(0)}, gpu.ErrIllegalAddress},
		{"culvert_crc32c", []uint64{m.at(0), 8, m.at(1)}, gpu.ErrMisalignedAddress},
		{"culvert_gather", []uint64{m.at(0), m.at(512), 1}, gpu.ErrIllegalAddress},
		{"culvert_gather", []uint64{m.at(0), m.at(1020), 1}, gpu.ErrMisalignedAddress},
		{"culvert_gather", []uint64{m.at(0), m.at(1016), 1}, gpu.ErrIllegalAddress},
		{"culvert_scatter", []uint64{m.at(0), m.at(512), 1 << 60}, gpu.ErrIllegalAddress},
	} {
		before := bytes.Clone(m.data)
		if err := m.launch(tt.name, gpu.Dim{X: 1}, gpu.Dim{X: 1}, tt.args...); !errors.Is(err, tt.want) {
			t.Errorf("%s%v: %v, want %v", tt.name, tt.args, err, tt.want)
		}
		if !bytes.Equal(before, m.data) {
			t.Errorf("%s%v changed memory", tt.name, tt.args)
		}
	}
}

// Empty ranges are not looked at, wherever they are.
func TestEmptyLaunches(t *testing.T) {
	m := newMemory(16)
	m.run(t, "culvert_sum", 0, 0, 0)
	m.run(t, "culvert_fill", 0, 0, 7)
	m.run(t, "culvert_compare", 0, 0, 0, 0)
	m.run(t, "culvert_crc32c", 0, 0, 0)
	m.run(t, "culvert_gather", 0, 0, 0)
	m.run(t, "culvert_scatter", 0, 1, 0)
}

func TestSegmentLayout(t *testing.T) {
	b := kernels.Segment{Src: 0x0102030405060708, Dst: 0x11, Len: 0x22}.Append([]byte{0xff})
	want := []byte{0xff, 8, 7, 6, 5, 4, 3, 2, 1, 0x11, 0, 0, 0, 0, 0, 0, 0, 0x22, 0, 0, 0, 0, 0, 0, 0}
	if diff := cmp.Diff(want, b); diff != "" || len(b)-1 != kernels.SegmentSize {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
