package wc

// Fence waits until earlier stores have left the CPU's buffers.
func Fence() { fence() }

//go:noescape
func fence()
