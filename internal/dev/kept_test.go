package dev

import (
	"errors"
	"io/fs"
	"slices"
	"testing"
)

func TestKept(t *testing.T) {
	var k Kept[int]
	refused := errors.New("refused")
	for i := range 4 {
		x, err := k.Take(func() (int, error) {
			if i == 2 {
				return 0, refused
			}
			return i, nil
		})
		if i == 2 && !errors.Is(err, refused) || i != 2 && (x != i || err != nil) {
			t.Errorf("take %d: %d, %v", i, x, err)
		}
	}
	k.Forget(1)
	var released []int
	err := k.Close(func(x int) error {
		released = append(released, x)
		if x == 3 {
			return fs.ErrClosed // somebody else was faster
		}
		return refused
	})
	if !errors.Is(err, refused) || errors.Is(err, fs.ErrClosed) {
		t.Errorf("close: %v", err)
	}
	if want := []int{0, 3}; !slices.Equal(released, want) {
		t.Errorf("released %v, want %v", released, want)
	}
	if _, err := k.Take(func() (int, error) { t.Error("taken after close"); return 0, nil }); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("take after close: %v", err)
	}
	if err := k.Close(nil); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
}
