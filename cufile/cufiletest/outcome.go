package cufiletest

import "fmt"

// An outcome is what came of a step.
type outcome struct {
	step   *Step
	code   int
	n      int64
	damage string // how file or memory differ from the model
}

// String is the form in which the C program of clib/testdata/differential records it, too.
func (o outcome) String() string {
	var text string
	switch {
	case o.code != 0:
		text = fmt.Sprintf("%v: error %d", o.step, o.code)
	case o.step.Call == Read || o.step.Call == Write:
		text = fmt.Sprintf("%v: %d bytes", o.step, o.n)
	default:
		text = fmt.Sprintf("%v: ok", o.step)
	}
	if o.damage != "" {
		text += ", " + o.damage
	}
	return text
}

// expect tells the model about a step that should succeed and returns the number
// of bytes that should move. What the call did not do by its own account is not
// done to the model either.
func (r *player) expect(s *Step, got outcome) int64 {
	at := s.At + s.Buf
	moved := func(n int64) []byte { return r.bytes[at : at+min(n, max(got.n, 0))] }
	switch {
	case s.Call == Truncate:
		r.file.truncate(s.Off)
	case s.Call == Read && s.Len > 0:
		n := min(int64(s.Len), max(r.file.size-s.Off, 0))
		r.file.read(moved(n), s.Off)
		return n
	case s.Call == Write && s.Len > 0:
		if got.n > 0 {
			r.file.write(moved(int64(s.Len)), s.Off)
		}
		return int64(s.Len)
	}
	return 0
}

// damage compares memory and file with the models.
func (r *player) damage(s *Step) string {
	if !r.memory.gone && s.Call == Read {
		r.seen = append(r.seen[:0], r.bytes...)
		if err := r.memory.load(r.seen); err != nil {
			return err.Error()
		}
		if i := firstDifference(r.seen, r.bytes); i >= 0 {
			copy(r.bytes, r.seen) // later steps shall speak of themselves
			return fmt.Sprintf("the memory differs at %d", i)
		}
	}
	if s.Call == Write || s.Call == Truncate {
		if err := r.file.check(r.path); err != nil {
			return err.Error()
		}
	}
	return ""
}
