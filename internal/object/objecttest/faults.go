// Package objecttest has stores that misbehave, for tests: Faults stands between a
// client and any handler, a real store behind a reverse proxy among them.
package objecttest

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
)

// A Fault is what happens to one answer.
type Fault int

const (
	None     Fault = iota
	Cut            // the connection ends in the middle of the body
	CutEarly       // the connection ends before the answer
	Truncate       // a shorter body, announced as such
	Longer         // a longer body, announced as such
	Reorder        // the answer to a request for other bytes
	Swap           // other bytes, announced as the right ones
	Corrupt        // one bit of the body
	SlowDown       // 503 with the code of S3
	Broken         // 500
	Redirect       // to itself, once
	Replace        // as if the object had been replaced
	Whole          // all of the object instead of a range
)

// Faults are faults for the requests of a server, one after the other.
type Faults struct {
	Handler http.Handler

	mu sync.Mutex
	on func(n int, r *http.Request) Fault
	n  int
}

// On sets what picks the fault of a request; n counts requests from now on.
func (f *Faults) On(pick func(n int, r *http.Request) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on, f.n = pick, 0
}

// Requests is how many requests there were since On.
func (f *Faults) Requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

func (f *Faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	n, on := f.n, f.on
	f.n++
	f.mu.Unlock()
	fault := None
	if on != nil && r.URL.Query().Get("redirected") == "" {
		fault = on(n, r)
	}
	switch fault {
	case None:
		f.Handler.ServeHTTP(w, r)
		return
	case CutEarly:
		hangUp(w)
		return
	case SlowDown:
		http.Error(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`, http.StatusServiceUnavailable)
		return
	case Broken:
		http.Error(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>InternalError</Code></Error>`, http.StatusInternalServerError)
		return
	case Redirect:
		u := *r.URL
		q := u.Query()
		q.Set("redirected", "1")
		u.RawQuery = q.Encode()
		http.Redirect(w, r, u.String(), http.StatusTemporaryRedirect)
		return
	case Reorder, Swap:
		shiftRange(r)
	case Whole:
		r.Header.Del("Range")
	}
	rec := httptest.NewRecorder()
	f.Handler.ServeHTTP(rec, r)
	f.answer(w, r, rec, fault)
}

// answer sends a recorded answer with a fault in it.
func (f *Faults) answer(w http.ResponseWriter, r *http.Request, rec *httptest.ResponseRecorder, fault Fault) {
	body, h := rec.Body.Bytes(), w.Header()
	for k, v := range rec.Header() {
		h[k] = v
	}
	switch fault {
	case Truncate:
		body = body[:len(body)/2]
	case Longer:
		body = append(bytes.Clone(body), "more"...)
	case Corrupt:
		body = bytes.Clone(body)
		body[len(body)/2] ^= 1
	case Swap:
		h.Set("Content-Range", r.Header.Get("X-Asked"))
	case Replace:
		h.Set("ETag", `"another"`)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(rec.Code)
	if fault == Cut {
		_, _ = w.Write(body[:len(body)/2])
		w.(http.Flusher).Flush()
		hangUp(w)
		return
	}
	_, _ = w.Write(body)
}

// hangUp closes the connection.
func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = conn.Close()
}

// shiftRange asks for other bytes, and keeps the Content-Range that the right ones
// would have had.
func shiftRange(r *http.Request) {
	var from, to int64
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err != nil {
		return
	}
	r.Header.Set("X-Asked", fmt.Sprintf("bytes %d-%d/*", from, to))
	if from > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from-1, to-1))
	}
}
