package dev

import (
	"errors"
	"io/fs"
	"slices"
	"sync"
)

// Kept is what a client has from a module and must release before it closes its
// device node. The zero value is empty and open.
type Kept[T comparable] struct {
	mu    sync.Mutex
	items []T
	gone  bool
}

// Take keeps what take returns. During and after Close it does not call take and
// returns fs.ErrClosed.
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

// Forget removes what was released.
func (k *Kept[T]) Forget(x T) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.items = slices.DeleteFunc(k.items, func(y T) bool { return x == y })
}

// Close releases the rest; release returns fs.ErrClosed for what was released
// meanwhile. A second call returns fs.ErrClosed.
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
