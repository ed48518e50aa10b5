//go:build !amd64 && !arm64

package wc

import "sync/atomic"

var fenced atomic.Uint32

// Fence waits until earlier stores have left the CPU's buffers. An atomic
// update is the strongest order that Go has to offer here.
func Fence() { fenced.Add(1) }
