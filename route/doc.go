// Package route is the vocabulary of transfers: the routes that data can take
// between storage and GPU memory ([ID]), the record of one transfer ([Receipt]),
// the reasons why a route was not used ([Decline]), and the routes of one file on
// one GPU ([Plan]).
//
// Every transfer of package cufile returns a Receipt: which route moved the bytes,
// how many of them were written to host memory and how that is known, and for each
// better route the first check that failed. A required route that cannot be used
// is a [RequireError]; nothing falls back silently.
package route
