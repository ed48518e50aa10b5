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
// and returns its result and number; after the last it returns zero and the
// number of steps. All of them run on one thread, in one transition from Go to C
// where the platform allows: CUDA wants its context made current before most
// calls, and two transitions cost twice as much as one.
func Chain(steps ...Step) (result int32, at int) {
	if len(steps) > maxSteps {
		panic("dl: too many steps")
	}
	return chain(steps)
}
