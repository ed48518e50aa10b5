package dev

import (
	"errors"
	"io/fs"
	"slices"
	"sync"
)

// Kept is what a client has taken from a module and must give back before it
// closes its node. The zero value is empty and open.
type Kept[T comparable] struct {
	mu    sync.Mutex
	items []T
	gone  bool
}

// Take keeps what take returns. Nothing is taken after Close, nor while it
// runs: take is not called then, and the error is fs.ErrClosed.
func (k *Kept[T]) Take(take func() (T, error)) (T, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone {
		var none T
		return none, fs.ErrClosed
	}
	x, err := take()
	if err == nil {
		k.items = append(k.items, x)
	}
	return x, err
}

// Forget drops what was given back.
func (k *Kept[T]) Forget(x T) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.items = slices.DeleteFunc(k.items, func(y T) bool { return x == y })
}

// Close gives back what is left; release returns fs.ErrClosed for what somebody
// else has given back meanwhile. A second call is fs.ErrClosed.
func (k *Kept[T]) Close(release func(T) error) error {
	k.mu.Lock()
	gone := k.gone
	k.gone = true
	left := slices.Clone(k.items)
	k.mu.Unlock()
	if gone {
		return fs.ErrClosed
	}
	var errs []error
	for _, x := range left {
		if err := release(x); !errors.Is(err, fs.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
