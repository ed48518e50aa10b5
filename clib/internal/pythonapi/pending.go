package pythonapi

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// A pending call takes as long as its bytes or a server. It runs in a goroutine, and
// the caller asks for the answer in turns: a thread inside the core cannot handle
// Ctrl-C.
type pending struct {
	cancel context.CancelFunc
	done   chan struct{}
	reply  []byte
	ok     bool
}

// Begin starts to answer a request. The caller chooses the ticket, which must not be
// in use.
func (a *API) Begin(ticket uint64, request []byte) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pending{cancel: cancel, done: make(chan struct{})}
	a.mu.Lock()
	a.calls[ticket] = p
	a.mu.Unlock()
	text := bytes.Clone(request) // the caller may reuse its memory
	go func() {
		defer close(p.done)
		defer cancel()
		p.reply, p.ok = a.reply(ctx, text)
	}()
}

// Wait waits for the answer of a call, but not longer than most; then ready is false.
// After the answer the ticket is free.
func (a *API) Wait(ticket uint64, most time.Duration) (reply []byte, ok, ready bool) {
	a.mu.Lock()
	p := a.calls[ticket]
	a.mu.Unlock()
	if p == nil {
		reply, _ = encode(Explain(fmt.Errorf("no call has ticket %d", ticket)))
		return reply, false, true
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		return nil, false, false
	}
	a.mu.Lock()
	delete(a.calls, ticket)
	a.mu.Unlock()
	return p.reply, p.ok, true
}

// Cancel stops a call. The caller must still wait for its answer.
func (a *API) Cancel(ticket uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.calls[ticket]; p != nil {
		p.cancel()
	}
}
