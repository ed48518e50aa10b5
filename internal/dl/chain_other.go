//go:build !linux || !amd64 || nodl

package dl

import "runtime"

// chain makes one transition for each step, on one thread.
func chain(steps []Step) (int32, int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i, s := range steps {
		if r := int32(s.Fn.Call(s.Args[:]...)); r != 0 {
			return r, i
		}
	}
	return 0, len(steps)
}
