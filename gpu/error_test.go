package gpu_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
)

func TestFail(t *testing.T) {
	if err := gpu.Fail("cuInit(0)", gpu.Success, "all well"); err != nil {
		t.Errorf("success is %v", err)
	}
	err := fmt.Errorf("wrapped: %w", gpu.Fail("cuMemAlloc(100)", gpu.ErrOutOfMemory, "3 bytes free"))
	if !errors.Is(err, gpu.ErrOutOfMemory) || errors.Is(err, gpu.ErrInvalidValue) {
		t.Errorf("codes of %v", err)
	}
	e, ok := errors.AsType[*gpu.Error](err)
	if !ok || filepath.Base(e.File) != "error_test.go" || e.Line == 0 {
		t.Fatalf("blamed on %+v", e)
	}
	want := fmt.Sprintf("error_test.go:%d  cuMemAlloc(100) failed: code = CUDA_ERROR_OUT_OF_MEMORY, message = out of memory (3 bytes free)", e.Line)
	if e.Error() != want {
		t.Errorf("prints\n%s, want\n%s", e, want)
	}
}

func TestCodeOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want gpu.Code
	}{
		{nil, gpu.Success},
		{errors.New("something else"), gpu.ErrUnknown},
		{gpu.ErrNotReady, gpu.ErrNotReady},
		{gpu.Fail("op", 12345, ""), 12345},
		{errors.Join(errors.New("first"), gpu.Fail("op", gpu.ErrNotFound, "")), gpu.ErrNotFound},
	} {
		if got := gpu.CodeOf(tt.err); got != tt.want {
			t.Errorf("code of %v is %d, want %d", tt.err, got, tt.want)
		}
	}
}

func TestCodeTexts(t *testing.T) {
	if got, want := gpu.ErrInvalidValue.Error(), "CUDA_ERROR_INVALID_VALUE: invalid argument"; got != want {
		t.Errorf("prints %q", got)
	}
	for _, unknown := range []gpu.Code{-1, 12, 11, 12345} { // 12 is a code of the runtime
		if got, want := unknown.Error(), fmt.Sprintf("CUDA_ERROR_%d: unrecognized error code", unknown); got != want {
			t.Errorf("prints %q, want %q", got, want)
		}
	}
}

func TestAttributeNames(t *testing.T) {
	if got := gpu.AttrPageableMemoryAccess.String(); got != "PAGEABLE_MEMORY_ACCESS" {
		t.Error(got)
	}
	if got := gpu.Attribute(9999).String(); got != "ATTRIBUTE_9999" {
		t.Error(got)
	}
	for _, a := range gpu.DirectIOAttributes {
		if strings.HasPrefix(a.String(), "ATTRIBUTE_") {
			t.Errorf("attribute %d has no name", int32(a))
		}
	}
}

func TestUUID(t *testing.T) {
	u := gpu.UUID{0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8}
	const want = "GPU-12345678-9abc-def0-0102-030405060708"
	if u.String() != want {
		t.Errorf("prints %s", u)
	}
	text, err := u.MarshalText()
	if err != nil || string(text) != want {
		t.Errorf("text %s, %v", text, err)
	}
	var back gpu.UUID
	if err := back.UnmarshalText(text); err != nil || back != u {
		t.Errorf("back: %v, %v", back, err)
	}
	for _, bad := range []string{"", "GPU-", "12345678-9abc-def0-0102-030405060708x", "GPU-zz345678-9abc-def0-0102-030405060708"} {
		if err := back.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
