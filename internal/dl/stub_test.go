//go:build !linux || (!amd64 && !arm64) || nodl

package dl

import (
	"errors"
	"testing"
)

func TestUnavailable(t *testing.T) {
	if _, err := Open("libc.so.6"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Open: %v", err)
	}
	if _, err := OpenPrivate("/lib/libc.so.6"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("OpenPrivate: %v", err)
	}
}
