package softcuda

import (
	"structs"

	"github.com/culvert-io/culvert/clib/internal/handle"
)

// maxDepth is the number of contexts that a thread can push.
const maxDepth = 62

// A Thread is the state that CUDA keeps per thread of the operating system. It
// is a thread-local variable in C (struct culvert_thread): goroutines move
// between threads, C programs do not.
type Thread struct {
	_ structs.HostLayout

	Depth     int32 // of Stack
	Device    int32 // of the runtime, set by cudaSetDevice
	LastError int32 // of the runtime, for cudaGetLastError
	Capture   int32 // the mode set by cuThreadExchangeStreamCaptureMode
	Stack     [maxDepth]handle.ID
}

func (t *Thread) top() handle.ID {
	if t.Depth == 0 {
		return 0
	}
	return t.Stack[t.Depth-1]
}

// setTop replaces the current context; 0 removes it.
func (t *Thread) setTop(id handle.ID) {
	switch {
	case t.Depth > 0 && id == 0:
		t.Depth--
	case t.Depth > 0:
		t.Stack[t.Depth-1] = id
	case id != 0:
		t.Stack[0] = id
		t.Depth = 1
	}
}

func (t *Thread) push(id handle.ID) bool {
	if t.Depth == maxDepth {
		return false
	}
	t.Stack[t.Depth] = id
	t.Depth++
	return true
}
