package cards

import (
	"errors"
	"testing"
)

func never() bool { return false }

// A record of one process ends the wait of another, and a new one is pending again.
func TestEvents(t *testing.T) {
	path := where(t)
	a, b := opened(t, path), opened(t, path)
	defer a.Close()
	defer b.Close()
	e, err := a.NewEvent()
	must(t, err)
	seen, err := b.OpenEvent(e.Name())
	must(t, err)
	if done, err := seen.Newest().Done(); !done || err != nil {
		t.Errorf("before the first record: %v, %v", done, err)
	}

	first := e.Record()
	if done, err := seen.Newest().Done(); done || err != nil {
		t.Errorf("a pending record: %v, %v", done, err)
	}
	waited := make(chan error)
	go func() { waited <- seen.Newest().Wait(never) }()
	first.Complete()
	must(t, <-waited)

	second := seen.Record()
	if done, _ := e.Newest().Done(); done {
		t.Error("the second record is done with the first")
	}
	must(t, e.Newest().Wait(func() bool { return true }))
	second.Complete()
	must(t, e.Newest().Wait(never))

	// The slot of a destroyed event is another's, whose records are its own.
	late := seen.Record()
	e.Close()
	if _, err := b.OpenEvent(e.Name()); !errors.Is(err, ErrStaleEvent) {
		t.Errorf("open a destroyed event: %v", err)
	}
	seen.Close()
	next, err := a.NewEvent()
	must(t, err)
	pending := next.Record()
	for range 3 {
		late.Complete()
	}
	if done, _ := pending.Done(); done || next.Name().Slot != e.Name().Slot {
		t.Errorf("slot %d after slot %d: done by a record of the event before", next.Name().Slot, e.Name().Slot)
	}
}

// The record of a process that is gone is an error.
func TestRecorderEnds(t *testing.T) {
	path := where(t)
	a, b := opened(t, path), opened(t, path)
	defer a.Close()
	e, err := a.NewEvent()
	must(t, err)
	theirs, err := b.OpenEvent(e.Name())
	must(t, err)
	theirs.Record()
	must(t, b.Close())
	if err := e.Newest().Wait(never); !errors.Is(err, ErrRecorderEnded) {
		t.Errorf("got %v, want %v", err, ErrRecorderEnded)
	}
}
