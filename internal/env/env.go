// Package env reads the environment of the process. A process that has more rights
// than its caller, for example one of a set-user-ID program that is linked to
// libcufile, sees no variables: they come from the caller, and several of them name
// code to load or files to write.
//
// All packages that become part of the C libraries read variables here.
package env

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// errSecure means that a directory is named by variables that do not count.
var errSecure = errors.New("the process has more rights than its caller: its environment is ignored")

// Secure reports whether the process has more rights than its caller, as
// secure_getenv of the C library does: by user, group, capabilities or security module.
// It stays so when the process drops the rights, because the variables stay.
var Secure = sync.OnceValue(func() bool {
	auxv, err := unix.Auxv()
	return secure(auxv, err, os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid())
})

// atSecure is AT_SECURE of <elf.h>.
const atSecure = 23

// secure looks for AT_SECURE, which the kernel sets when it starts a program. Without
// it the IDs decide.
func secure(auxv [][2]uintptr, err error, idsDiffer bool) bool {
	if err != nil {
		return idsDiffer
	}
	for _, entry := range auxv {
		if entry[0] == atSecure {
			return entry[1] != 0
		}
	}
	return idsDiffer
}

// Get is the value of a variable; empty if it is not set or does not count.
func Get(name string) string {
	value, _ := Lookup(name)
	return value
}

// Lookup is the value of a variable, and whether it is set and counts.
func Lookup(name string) (value string, ok bool) {
	if Secure() {
		return "", false
	}
	return os.LookupEnv(name)
}

// All lists the variables that are set and count, as os.Environ does.
func All() []string {
	if Secure() {
		return nil
	}
	return os.Environ()
}

// CacheDir is the user's directory for caches, which XDG_CACHE_HOME and HOME name.
func CacheDir() (string, error) {
	if Secure() {
		return "", errSecure
	}
	return os.UserCacheDir()
}
