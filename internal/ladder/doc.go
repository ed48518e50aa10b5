// Package ladder moves data between a source (a file) and GPU memory over the best
// route that both have.
//
// A [Ladder] holds the routes to one GPU, best first. For a source, [Ladder.Plan]
// probes each route once and keeps what it found: the routes that the source can
// use, each with its [Traits], and why it cannot use the others. For a request,
// [Plan.Run] lets choose pick the first route that accepts it, runs it there and
// fills the receipt. A route that the kernel rejects afterwards is declined from
// then on, and the request goes to the next one.
//
// Probing moves no data and choosing measures nothing. The choice (choose.go) is a
// function of the traits, the shape of the request and a snapshot of the moment.
// There is one file, or one group of files with a common prefix, per route.
package ladder
