package dl

// A Step is one call of a chain: a function of at most six words that returns a
// C int, zero for success.
type Step struct {
	Fn   Func
	Args [6]uintptr
}

// maxSteps is the longest chain.
const maxSteps = 4

// Chain calls the steps in order, stops at the first that does not return zero,
// and returns its result and index; if all return zero, it returns zero and the
// number of steps. All run on one thread, if possible in one transition from Go
// to C: CUDA needs its context made current before most calls, and two
// transitions would take twice the time.
func Chain(steps ...Step) (result int32, at int) {
	if len(steps) > maxSteps {
		panic("dl: too many steps")
	}
	return chain(steps)
}
