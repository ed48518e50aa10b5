package uring

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

const layoutC = `
#include <stdio.h>
#include <stddef.h>
#include <linux/io_uring.h>
int main(void) {
	printf("%zu %zu %zu %zu %zu\n", sizeof(struct io_uring_params), offsetof(struct io_uring_params, sq_off),
		offsetof(struct io_uring_params, cq_off), offsetof(struct io_sqring_offsets, array), offsetof(struct io_cqring_offsets, cqes));
	printf("%zu %zu %zu %zu %zu %zu %zu\n", sizeof(struct io_uring_sqe), offsetof(struct io_uring_sqe, off), offsetof(struct io_uring_sqe, addr),
		offsetof(struct io_uring_sqe, len), offsetof(struct io_uring_sqe, rw_flags), offsetof(struct io_uring_sqe, user_data), offsetof(struct io_uring_sqe, buf_index));
	printf("%zu %zu\n", sizeof(struct io_uring_cqe), offsetof(struct io_uring_cqe, res));
	printf("%d\n", IORING_OP_READ);
	return 0;
}
`

// The structs are checked against the kernel's header, not against themselves.
func TestLayout(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("needs a C compiler")
	}
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(src, []byte(layoutC), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-o", bin, src).CombinedOutput(); err != nil {
		t.Skipf("needs linux/io_uring.h: %v\n%s", err, out)
	}
	out, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	var (
		p params
		s sqringOffsets
		c cqringOffsets
		e sqe
		d cqe
	)
	want := fmt.Sprintln(unsafe.Sizeof(p), unsafe.Offsetof(p.SqOff), unsafe.Offsetof(p.CqOff), unsafe.Offsetof(s.Array), unsafe.Offsetof(c.Cqes)) +
		fmt.Sprintln(unsafe.Sizeof(e), unsafe.Offsetof(e.Off), unsafe.Offsetof(e.Addr), unsafe.Offsetof(e.Len), unsafe.Offsetof(e.RwFlags),
			unsafe.Offsetof(e.UserData), unsafe.Offsetof(e.BufIndex)) +
		fmt.Sprintln(unsafe.Sizeof(d), unsafe.Offsetof(d.Res)) +
		fmt.Sprintln(IORING_OP_READ)
	if got := string(out); got != want {
		t.Errorf("C says\n%sGo says\n%s", indent(got), indent(want))
	}
}

func indent(s string) string { return "\t" + strings.ReplaceAll(s, "\n", "\n\t") }
