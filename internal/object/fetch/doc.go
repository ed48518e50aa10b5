// Package fetch schedules range requests to one store. A read fills memory of the
// caller: it is cut into parts, one request each, whose bodies are read straight into
// place.
//
// # Who writes where
//
// One goroutine drives a part, and only it reads bodies into the part's memory. If a
// request is slow, a second one is made for the rest, a hedge. When the hedge has its
// answer and the first request has still not moved, the first is cancelled, and the
// same goroutine goes on with the body of the hedge. So hedging copies nothing and no
// two requests ever write to the same memory.
//
// # What is learned
//
// How long a store takes to answer decides when a request is slow (as TCP decides when
// to send again). How many parts a read is cut into is learned from what reads reach.
// How many requests may be in flight follows what the store says: SlowDown halves it
// and stops everybody for a moment, answers raise it again.
package fetch
