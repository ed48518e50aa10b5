package s3

import (
	"bytes"
	"io"
	"sync"
)

// A loan is a request's body in memory of the caller, such as pinned memory that it
// frees afterwards. Package net/http may read a body after its request has ended, if the
// store answered early or the request was cancelled; a loan that was returned has no
// bytes any more.
type loan struct {
	mu   sync.Mutex
	data *bytes.Reader // nil if it was returned
}

func lend(data []byte) *loan { return &loan{data: bytes.NewReader(data)} }

func (l *loan) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.data == nil {
		return 0, io.ErrClosedPipe
	}
	return l.data.Read(p)
}

// Close ends the use by package net/http.
func (l *loan) Close() error {
	l.giveBack()
	return nil
}

// giveBack makes the memory the caller's again.
func (l *loan) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = nil
}

// An answer gives the memory of its request back when it is closed.
type answer struct {
	io.ReadCloser
	body *loan
}

func (a answer) Close() error {
	defer a.body.giveBack()
	return a.ReadCloser.Close()
}
