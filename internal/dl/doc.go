// Package dl loads shared libraries and calls their C functions without cgo.
// It is the only package that does: a program that loads libraries is linked
// against the dynamic loader, and keeping that in one place keeps it optional.
//
// With the build tag nodl, and on systems where the loader is not supported,
// every library is missing with [ErrUnavailable] and the program is static.
//
// # Calls
//
// A [Func] takes and gives machine words. A pointer passed as a word does not
// keep its object alive and does not follow it: pass memory that C owns, or a
// heap object that is kept alive past the call (a pooled struct is both).
// Calls do not allocate.
//
// A function that takes or returns floating-point numbers by value cannot be
// called. A struct of up to 16 bytes returned by value arrives in the two
// results of [Func.Call2].
package dl

import (
	"errors"
	"strings"
)

// ErrUnavailable is why nothing can be loaded in a build without the loader.
var ErrUnavailable = errors.New("this program was built without support for shared libraries")

// An Attempt is a name that Open tried, and what the loader said.
type Attempt struct {
	Name string
	Err  error
}

// An OpenError lists the names that were tried in vain.
type OpenError struct{ Tried []Attempt }

// Error names the reasons, each once, with the names that they hold for.
func (e *OpenError) Error() string {
	var reasons []string
	names := map[string][]string{}
	for _, t := range e.Tried {
		why := strings.TrimPrefix(t.Err.Error(), t.Name+": ") // the loader repeats it
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

// Unwrap gives what the loader said to errors.Is.
func (e *OpenError) Unwrap() []error {
	errs := make([]error, len(e.Tried))
	for i, t := range e.Tried {
		errs[i] = t.Err
	}
	return errs
}

// A SymbolError says that a library does not export a name.
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

// Name is the name under which the library was opened.
func (l *Library) Name() string { return l.name }

// A Func is the address of a C function.
type Func uintptr

// Open loads the first of the names that can be loaded. Its symbols stay
// invisible to other libraries.
func Open(names ...string) (*Library, error) { return open(rtldNow|rtldLocal, names) }

// OpenPrivate loads a library that uses its own symbols before those of the
// process, so that a namesake loaded earlier cannot stand in for it. The path
// must be absolute: by bare name the loader would return that namesake.
func OpenPrivate(path string) (*Library, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, &OpenError{[]Attempt{{path, errors.New("not an absolute path")}}}
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
