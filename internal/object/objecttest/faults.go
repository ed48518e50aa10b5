// Package objecttest has stores that misbehave, for tests: Faults stands between a
// client and any handler, a real store behind a reverse proxy among them.
package objecttest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
)

// A Fault is what happens to one request or its answer.
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
	Delay          // no answer before the client gives up this request
	Lost           // 500, after the request was served

	// Of requests with a body.
	SentCorrupt // one bit of it
	SentShort   // half of it, announced as such
	SentCut     // half of it arrives
	SentAside   // as another part
)

var names = []string{
	"none", "cut", "cut early", "truncated", "longer", "reordered", "swapped", "corrupted", "503", "500", "redirected", "replaced", "whole",
	"delayed", "lost", "sent corrupted", "sent short", "sent cut", "sent as another part",
}

func (f Fault) String() string { return names[f] }

// AnswerFaults are those that can happen to any answer; SentFaults to any body.
var (
	AnswerFaults = []Fault{Cut, CutEarly, Truncate, Longer, Corrupt, SlowDown, Broken, Redirect, Replace, Delay, Lost}
	SentFaults   = []Fault{SentCorrupt, SentShort, SentCut, SentAside}
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
	case Delay:
		_, _ = io.Copy(io.Discard, r.Body) // the end of the connection is seen after it
		<-r.Context().Done()
		return
	case SentCorrupt, SentShort, SentCut, SentAside:
		if !spoil(r, fault) {
			hangUp(w)
			return
		}
	case Reorder, Swap:
		shiftRange(r)
	case Whole:
		r.Header.Del("Range")
	}
	rec := httptest.NewRecorder()
	f.Handler.ServeHTTP(rec, r)
	if fault == Lost {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	f.answer(w, r, rec, fault)
}

// spoil changes what a client has sent. It reports whether the store gets all of it.
func spoil(r *http.Request, fault Fault) bool {
	body, err := io.ReadAll(r.Body)
	switch fault {
	case SentCorrupt:
		flip(body)
	case SentShort, SentCut:
		body = body[:len(body)/2]
	case SentAside:
		q := r.URL.Query()
		if n, err := strconv.Atoi(q.Get("partNumber")); err == nil {
			q.Set("partNumber", strconv.Itoa(n+1))
			r.URL.RawQuery = q.Encode()
		}
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return err == nil && fault != SentCut
}

// flip changes one bit in the middle.
func flip(p []byte) {
	if len(p) > 0 {
		p[len(p)/2] ^= 1
	}
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
		flip(body)
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

// RefusesPart2 serves a store that refuses the second part of an upload, and does not answer
// the first one as long as its client waits.
func RefusesPart2(store http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("partNumber") {
		case "1":
			_, _ = io.Copy(io.Discard, r.Body) // the end of the request is seen after it
			<-r.Context().Done()
		case "2":
			_, _ = io.Copy(io.Discard, r.Body) // or the answer may be lost
			w.WriteHeader(http.StatusForbidden)
		default:
			store.ServeHTTP(w, r)
		}
	})
}
