// Package qmp is a small client of QEMU's machine protocol: commands with
// their answers, and events. One JSON object per line in both directions.
package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// An Event is something that QEMU reports unasked, such as DEVICE_DELETED.
type Event struct {
	Name string
	Data json.RawMessage
}

// An Error is QEMU's refusal of a command.
type Error struct {
	Command     string
	Class, Desc string
}

func (e *Error) Error() string { return fmt.Sprintf("qmp %s: %s (%s)", e.Command, e.Desc, e.Class) }

// A Client speaks to one QEMU. It is safe for concurrent use.
type Client struct {
	conn io.ReadWriteCloser
	done chan struct{} // closed when the reader ends

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when events or err change
	events  []Event
	pending map[uint64]chan message
	nextID  uint64
	err     error
}

// message is any line that QEMU sends.
type message struct {
	QMP    json.RawMessage `json:"QMP"`
	ID     *uint64         `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

type command struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
	ID        uint64 `json:"id"`
}

// New takes over conn, waits for QEMU's greeting and leaves negotiation mode.
func New(ctx context.Context, conn io.ReadWriteCloser) (*Client, error) {
	c := &Client{
		conn:    conn,
		done:    make(chan struct{}),
		changed: make(chan struct{}),
		pending: map[uint64]chan message{},
	}
	greeted := make(chan struct{})
	go c.read(greeted)
	select {
	case <-greeted:
	case <-c.done:
		return nil, fmt.Errorf("qmp: no greeting: %w", c.failure())
	case <-ctx.Done():
		c.Close()
		return nil, fmt.Errorf("qmp: no greeting: %w", ctx.Err())
	}
	if _, err := c.Execute(ctx, "qmp_capabilities", nil); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Execute runs a command and returns what QEMU returned. args is encoded as
// JSON; nil means none. Many commands only start something: its end is an
// event.
func (c *Client) Execute(ctx context.Context, name string, args any) (json.RawMessage, error) {
	reply := make(chan message, 1)
	c.mu.Lock()
	c.nextID++
	id := c.nextID
	line, err := json.Marshal(command{name, args, id})
	if err != nil {
		c.mu.Unlock()
		return nil, fmt.Errorf("qmp %s: %w", name, err)
	}
	c.pending[id] = reply
	_, err = c.conn.Write(append(line, '\n'))
	c.mu.Unlock()
	defer c.forget(id)
	if err != nil {
		return nil, fmt.Errorf("qmp %s: %w", name, err)
	}
	select {
	case m := <-reply:
		if m.Error != nil {
			return nil, &Error{name, m.Error.Class, m.Error.Desc}
		}
		return m.Return, nil
	case <-c.done:
		return nil, fmt.Errorf("qmp %s: %w", name, c.failure())
	case <-ctx.Done():
		return nil, fmt.Errorf("qmp %s: %w", name, ctx.Err())
	}
}

// Await returns the first event for which match is true. Events that came
// before the call count: nothing is missed between a command and its event.
func (c *Client) Await(ctx context.Context, match func(Event) bool) (Event, error) {
	for seen := 0; ; {
		c.mu.Lock()
		events, changed := c.events, c.changed
		c.mu.Unlock()
		for ; seen < len(events); seen++ {
			if match(events[seen]) {
				return events[seen], nil
			}
		}
		select {
		case <-changed:
		case <-c.done:
			if c.count() == seen {
				return Event{}, fmt.Errorf("qmp: waiting for an event: %w", c.failure())
			}
		case <-ctx.Done():
			return Event{}, fmt.Errorf("qmp: waiting for an event: %w", ctx.Err())
		}
	}
}

// Close ends the connection and waits for the reader.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	return err
}

func (c *Client) read(greeted chan<- struct{}) {
	defer close(c.done)
	dec := json.NewDecoder(c.conn)
	for {
		var m message
		if err := dec.Decode(&m); err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
		if m.QMP != nil && greeted != nil {
			close(greeted)
			greeted = nil
			continue
		}
		c.deliver(m)
	}
}

func (c *Client) deliver(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.Event != "":
		c.events = append(c.events, Event{m.Event, m.Data})
		close(c.changed)
		c.changed = make(chan struct{})
	case m.ID != nil:
		if reply, ok := c.pending[*m.ID]; ok {
			delete(c.pending, *m.ID)
			reply <- m
		}
	}
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

func (c *Client) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.events)
}

func (c *Client) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil || errors.Is(c.err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return c.err
}
