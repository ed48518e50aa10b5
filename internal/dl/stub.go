//go:build !linux || (!amd64 && !arm64) || nodl

package dl

import "syscall"

// No library can be opened in this build, so no Func exists to be called.
const noFunc = "dl: call of a function that cannot exist in this build"

// Call calls f and returns its result.
func (f Func) Call(...uintptr) uintptr { panic(noFunc) }

// CallErrno calls f and returns its result and errno.
func (f Func) CallErrno(...uintptr) (uintptr, syscall.Errno) { panic(noFunc) }

// Callback returns 0, which is not a function: this build cannot call C.
func Callback(func(uintptr)) Func { return 0 }

// Close unloads the library.
func (l *Library) Close() error { return ErrUnavailable }

// Path is the file of the library.
func (l *Library) Path() string { return l.name }

func load(string, int) (uintptr, error) { return 0, ErrUnavailable }

func (l *Library) lookup(string) Func { return 0 }
