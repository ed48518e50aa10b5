// Package dl loads shared libraries and calls their C functions without cgo. Only
// this package does, so that the link to the dynamic loader is optional: with the
// build tag nodl, and on unsupported systems, loading fails with
// [ErrUnavailable] and the program is static.
//
// # Calls
//
// A [Func] takes and returns machine words, not floating-point numbers. A pointer
// passed as a word does not keep its object alive: pass memory of C, or a heap
// object that stays alive until the call returns (see [Ref]). Calls do not
// allocate.
package dl

import (
	"errors"
	"strings"
)

// ErrUnavailable is the error of loading in a build without the loader.
var ErrUnavailable = errors.New("this program was built without support for shared libraries")

// An Attempt is a name that Open tried, and the loader's error.
type Attempt struct {
	Name string
	Err  error
}

// An OpenError lists the names that could not be loaded.
type OpenError struct{ Tried []Attempt }

// Error has each reason once, with the names that it applies to.
func (e *OpenError) Error() string {
	var reasons []string
	names := map[string][]string{}
	for _, t := range e.Tried {
		why := strings.TrimPrefix(t.Err.Error(), t.Name+": ") // the loader repeats the name
		if names[why] == nil {
			reasons = append(reasons, why)
		}
		names[why] = append(names[why], t.Name)
	}
	for i, why := range reasons {
		reasons[i] = strings.Join(names[why], ", ") + ": " + why
	}
	return "no library could be loaded: " + strings.Join(reasons, "; ")
}

// Unwrap is the loader's errors.
func (e *OpenError) Unwrap() []error {
	errs := make([]error, len(e.Tried))
	for i, t := range e.Tried {
		errs[i] = t.Err
	}
	return errs
}

// A SymbolError means that a library does not export a name.
type SymbolError struct {
	Library string
	Symbol  string
}

func (e *SymbolError) Error() string { return e.Library + " does not export " + e.Symbol }

// A Library is a loaded shared library.
type Library struct {
	name   string
	handle uintptr
}

// A Func is the address of a C function.
type Func uintptr

// Open loads the first of the names that can be loaded. Other libraries do not see
// its symbols.
func Open(names ...string) (*Library, error) { return open(rtldNow|rtldLocal, names) }

// OpenPrivate loads a library that prefers its own symbols to those of the
// process, so that a library of the same name cannot replace it. The path must be
// absolute: for a bare name the loader would return that other library.
func OpenPrivate(path string) (*Library, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, &OpenError{[]Attempt{{path, errors.New("path must be absolute")}}}
	}
	return open(rtldNow|rtldLocal|rtldDeepBind, []string{path})
}

// Flags of dlopen, from glibc's bits/dlfcn.h.
const (
	rtldLocal    = 0
	rtldNow      = 2
	rtldDeepBind = 8
)

func open(flags int, names []string) (*Library, error) {
	e := &OpenError{}
	for _, name := range names {
		h, err := load(name, flags)
		if err == nil {
			return &Library{name, h}, nil
		}
		e.Tried = append(e.Tried, Attempt{name, err})
	}
	return nil, e
}

// Sym finds a function.
func (l *Library) Sym(name string) (Func, error) {
	if f := l.lookup(name); f != 0 {
		return f, nil
	}
	return 0, &SymbolError{l.name, name}
}

// Has reports whether the library exports a name.
func (l *Library) Has(name string) bool { return l.lookup(name) != 0 }
