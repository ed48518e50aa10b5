package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/culvert-io/culvert/internal/crc32c"
)

// ErrDiffers means that verification found a difference.
var ErrDiffers = errors.New("copy differs from the source")

// verify compares source and destination by plain reads, which share no code with the
// routes.
func (r *Result) verify(ctx context.Context, source, dest io.ReaderAt) error {
	want, _, err := crc32c.File(ctx, source)
	if err != nil {
		return err
	}
	got, _, err := crc32c.File(ctx, dest)
	if err != nil {
		return err
	}
	return r.compare(want, got)
}

// verifyHere compares a file, which is read again, with the CRC-32C of the other end:
// of the destination if the file is the source.
func (r *Result) verifyHere(ctx context.Context, here io.ReaderAt, isSource bool, other func(n int64) (uint32, error)) error {
	sum, n, err := crc32c.File(ctx, here)
	if err != nil {
		return err
	}
	far, err := other(n)
	if err != nil {
		return err
	}
	if isSource {
		return r.compare(sum, far)
	}
	return r.compare(far, sum)
}

// compare records whether source and destination have the same CRC-32C.
func (r *Result) compare(source, dest uint32) error {
	r.CRC32C = fmt.Sprintf("%08x", dest)
	if source != dest {
		return fmt.Errorf("%s has CRC-32C %08x, %s has %08x: %w", r.Source, source, r.Dest, dest, ErrDiffers)
	}
	r.Verified = true
	return nil
}
