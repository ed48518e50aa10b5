// Package verbs is a verbs device in software: protection domains, regions, completion
// queues and reliable connected queue pairs, with TCP connections as the wire. What
// memory is behind a region is up to the caller ([Backing]): rdma/tcp has memory of the
// process, soft/nic has DMA on the fabric of the software machine. So both give the same
// completions.
//
// # Wire
//
// Two connected queue pairs have one connection. The address of an end is its GID (an IP
// address) and its LID (a TCP port; 0 is [DefaultPort], because programs for RoCE set no
// LID); the lower end dials. A handshake proves the token,
// names both queue pairs and both packet sequence numbers, which only the two ends know,
// and tells how many requests each has executed. If the connection breaks, a new
// handshake resumes: requests that were executed are not executed again, except reads;
// the results of atomics are repeated.
//
// Requests have consecutive numbers. The responder executes them in order and answers in
// order; an answer acknowledges all earlier requests. A request that finds no receive
// is answered with "receiver not ready", and the requests after it are dropped until it is
// sent again.
//
// # Trust
//
// The responder checks every key, range and right. A request that fails the checks is
// answered with an error, its data is discarded, and the queue pair fails. So does a
// queue pair whose peer breaks the protocol.
//
// # Memory and locks
//
// Memory is held only during system calls that do not block, so that revoking a region
// or flushing a queue pair waits for one such call at most. A peer that stops in the
// middle of a message blocks nothing.
//
// Lock order: conn.out, QP.mu, conn.memory, region.mu; CQ.mu and Device.mu are innermost.
package verbs
