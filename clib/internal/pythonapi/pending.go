package pythonapi

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// A pending call takes as long as bytes or a holder take. It runs beside its
// caller, who asks for the answer as long as it likes to wait in one go: a thread
// that is inside the core hears no Ctrl-C.
type pending struct {
	cancel context.CancelFunc
	done   chan struct{}
	reply  []byte
	ok     bool
}

// Begin starts to answer a request. The ticket is the caller's choice, and not in
// use.
func (d *API) Begin(ticket uint64, request []byte) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pending{cancel: cancel, done: make(chan struct{})}
	d.mu.Lock()
	d.calls[ticket] = p
	d.mu.Unlock()
	text := bytes.Clone(request) // the caller's memory is its own again
	go func() {
		defer close(p.done)
		defer cancel()
		p.reply, p.ok = d.reply(ctx, text)
	}()
}

// Wait takes the answer of a call that was begun. ready is false where it is not
// there within the time; once taken, the ticket is void.
func (d *API) Wait(ticket uint64, most time.Duration) (reply []byte, ok, ready bool) {
	d.mu.Lock()
	p := d.calls[ticket]
	d.mu.Unlock()
	if p == nil {
		reply, _ = encode(Explain(fmt.Errorf("there is no call with ticket %d", ticket)))
		return reply, false, true
	}
	patience := time.NewTimer(most)
	defer patience.Stop()
	select {
	case <-p.done:
	case <-patience.C:
		return nil, false, false
	}
	d.mu.Lock()
	delete(d.calls, ticket)
	d.mu.Unlock()
	return p.reply, p.ok, true
}

// Cancel stops a call that was begun. Its answer must still be taken.
func (d *API) Cancel(ticket uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.calls[ticket]; p != nil {
		p.cancel()
	}
}
