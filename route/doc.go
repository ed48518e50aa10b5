// Package route decides how bytes get between a file and GPU memory, moves them
// that way, and says afterwards what was done.
//
// A [Route] is one way: NVIDIA's own library, nvidia-fs, peer-to-peer DMA, CPU
// stores through BAR1, a ring of pinned memory, or plain pread and copy. The
// routes of a GPU form a [Ladder], best rung first. For a file the ladder probes
// each rung once and keeps the answer as a [Plan]; for a request it takes the
// first usable rung that accepts it. Every transfer returns a [Receipt]: which
// route, how many bytes crossed host memory and how we know, and for each better
// rung the first test that it failed.
//
// Falling back is never silent, and it can be refused: see [Plan.Require].
package route
