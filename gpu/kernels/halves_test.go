//go:build linux && (amd64 || arm64) && !nodl

package kernels_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/internal/dl"
)

// emulator compiles the CUDA half for the CPU.
func emulator(t *testing.T) dl.Func {
	t.Helper()
	cxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("needs g++ to compile the CUDA half for the CPU")
	}
	so := filepath.Join(t.TempDir(), "emulate.so")
	cmd := exec.Command(cxx, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-fwrapv", "-o", so, "testdata/emulate.cc")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lib, err := dl.Open(so)
	if err != nil {
		t.Fatal(err)
	}
	f, err := lib.Sym("emulate")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Layout of the memory in the property test: data everywhere, a table of
// pieces and a result word at places of their own.
const (
	dataSize   = 4 << 10
	tableAt    = dataSize
	maxPieces  = 8
	resultAt   = tableAt + maxPieces*kernels.PieceSize
	memorySize = resultAt + 16
)

// Both halves of every pair change memory in the same way, whatever the launch
// shape and however the memory is segmented.
func TestHalvesAgree(t *testing.T) {
	emulate := emulator(t)
	rapid.Check(t, func(t *rapid.T) {
		data := make([]byte, memorySize)
		m := newMemory(0, rapid.SampledFrom([]int{1, 3, 7, 64, 4096}).Draw(t, "segments"), rapid.Uint64().Draw(t, "seed"))
		for i := range dataSize {
			data[i] = byte(m.rng.IntN(4)) // NULs and equal bytes are not rare
		}
		m.data, m.base = data, gpu.Addr(addressOf(data))
		name := rapid.SampledFrom(kernels.Names()).Draw(t, "kernel")
		args := drawArgs(t, m, name)
		shape := drawShape(t)

		before := bytes.Clone(data)
		if emulate.Call(textOf(name), addressOf(shape), addressOf(args)) == 0 {
			t.Fatalf("no CUDA half of %s", name)
		}
		cuda := bytes.Clone(data)
		copy(data, before)
		grid, block := gpu.Dim{X: shape[0], Y: shape[1], Z: shape[2]}, gpu.Dim{X: shape[3], Y: shape[4], Z: shape[5]}
		if err := m.launch(name, grid, block, args...); err != nil {
			t.Fatal(err)
		}
		for i := range data {
			if data[i] != cuda[i] {
				t.Fatalf("byte %d: CUDA %#x, Go %#x, before %#x", i, cuda[i], data[i], before[i])
			}
		}
	})
}

func drawShape(t *rapid.T) []uint32 {
	shape := make([]uint32, 6)
	for i := range shape {
		shape[i] = rapid.Uint32Range(1, 5).Draw(t, "shape")
	}
	return shape
}

func drawArgs(t *rapid.T, m *memory, name string) []uint64 {
	n := rapid.IntRange(0, 1500).Draw(t, "n")
	off := rapid.IntRange(0, dataSize-n).Draw(t, "offset")
	result := m.at(resultAt)
	switch name {
	case "strrev", "culvert_strrev":
		m.data[off+n] = 0 // ends at the latest here
		return []uint64{m.at(off), result}
	case "culvert_counter":
		return []uint64{result}
	case "culvert_sum", "culvert_crc32c":
		return []uint64{m.at(off), uint64(n), result}
	case "culvert_fill":
		return []uint64{m.at(off), uint64(n), rapid.Uint64().Draw(t, "pattern")}
	case "culvert_compare":
		return []uint64{m.at(off), m.at(rapid.IntRange(0, dataSize-n).Draw(t, "other")), uint64(n), result}
	case "culvert_gather", "culvert_scatter":
		return drawTable(t, m, name == "culvert_gather")
	}
	t.Fatalf("no arguments for %s", name)
	return nil
}

// drawTable cuts pieces that do not overlap: sources in the first half of the
// data, destinations in the second.
func drawTable(t *rapid.T, m *memory, gather bool) []uint64 {
	const half, slot = dataSize / 2, dataSize / 2 / maxPieces
	base := m.at(half)
	if !gather {
		base = m.at(0)
	}
	count := rapid.IntRange(0, maxPieces).Draw(t, "pieces")
	align := rapid.SampledFrom([]int{1, 1, 16}).Draw(t, "align")
	var table []byte
	for i := range count {
		draw := func(max int, label string) uint64 {
			return uint64(rapid.IntRange(0, max/align).Draw(t, label) * align)
		}
		length := draw(slot, "length")
		src, dst := uint64(i*slot)+draw(slot-int(length), "src"), uint64(i*slot)+draw(slot-int(length), "dst")
		if gather {
			src += m.at(0)
		} else {
			dst += m.at(half)
		}
		table = kernels.Piece{Src: src, Dst: dst, Len: length}.Append(table)
	}
	copy(m.data[tableAt:], table)
	return []uint64{base, m.at(tableAt), uint64(count)}
}

func textOf(s string) uintptr { return addressOf(append([]byte(s), 0)) }
