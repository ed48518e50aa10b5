package bench

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/culvert-io/culvert/gpu"
)

// stride is how much is compared at a time, and the period of what is written.
// It is odd, so that a block that went to the wrong place is noticed.
const stride = 1<<20 - 1

// fill gives every block that a caller writes the same content: then it does not
// matter who wrote a block last.
func (r *run) fill(mem gpu.Span) error {
	content := make([]byte, min(r.w.Block, stride))
	rand.NewChaCha8([32]byte{}).Read(content)
	for block := range int64(r.w.Batch) {
		for at := int64(0); at < r.w.Block; at += stride {
			n := min(stride, r.w.Block-at)
			if err := r.dev.CopyIn(mem.Slice(uint64(block*r.w.Block+at), uint64(n)).Addr(), content[:n]); err != nil {
				return err
			}
		}
	}
	return nil
}

// verify compares the blocks of a caller's last call with the file.
func (r *run) verify(t *threadResult) error {
	n := min(r.w.Block, stride)
	have, want := make([]byte, n), make([]byte, n)
	for i, off := range t.offs {
		for at := int64(0); at < r.w.Block; at += stride {
			n := min(stride, r.w.Block-at)
			if _, err := r.file.ReadAt(want[:n], off+at); err != nil {
				return fmt.Errorf("verify: %w", err)
			}
			if err := r.dev.CopyOut(have[:n], t.mem.Slice(uint64(int64(i)*r.w.Block+at), uint64(n)).Addr()); err != nil {
				return fmt.Errorf("verify: %w", err)
			}
			if !bytes.Equal(have[:n], want[:n]) {
				where := fmt.Sprintf("offset %d", off)
				if s, ok := r.file.(striped); ok {
					where = s.where(off)
				}
				return fmt.Errorf("verify: memory and file differ in the block of %d bytes at %s", r.w.Block, where)
			}
		}
	}
	return nil
}
