//go:build !linux || (!amd64 && !arm64) || nodl

package dl

import "syscall"

// No library can be opened in this build, so no Func exists to be called.
const noFunc = "dl: call of a function that cannot exist in this build"

// Call calls f and returns its result.
func (f Func) Call(...uintptr) uintptr { panic(noFunc) }

// Call2 calls f and returns both result registers.
func (f Func) Call2(...uintptr) (uintptr, uintptr) { panic(noFunc) }

// CallErrno calls f and returns its result and errno.
func (f Func) CallErrno(...uintptr) (uintptr, syscall.Errno) { panic(noFunc) }

// Callback would make a C function. The result, 0, is no function; nothing
// can be handed it in this build.
func Callback(func(uintptr)) Func { return 0 }

// Close unloads the library.
func (l *Library) Close() error { return ErrUnavailable }

// Path is the file that the library was loaded from.
func (l *Library) Path() string { return l.name }

func load(string, int) (uintptr, error) { return 0, ErrUnavailable }

func (l *Library) lookup(string) Func { return 0 }
