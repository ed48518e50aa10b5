package env

import (
	"errors"
	"testing"
)

func TestSecure(t *testing.T) {
	unknown := errors.New("no auxiliary vector")
	for _, c := range []struct {
		name      string
		auxv      [][2]uintptr
		err       error
		idsDiffer bool
		want      bool
	}{
		{"an ordinary program", [][2]uintptr{{6, 4096}, {atSecure, 0}}, nil, false, false},
		{"a program with the rights of another user", [][2]uintptr{{6, 4096}, {atSecure, 1}}, nil, true, true},
		{"a program with capabilities of its file", [][2]uintptr{{atSecure, 1}}, nil, false, true},
		{"a service that acts for a user", [][2]uintptr{{atSecure, 0}}, nil, true, false},
		{"unknown, other IDs", nil, unknown, true, true},
		{"unknown, same IDs", nil, unknown, false, false},
		{"without the entry, other IDs", [][2]uintptr{{6, 4096}}, nil, true, true},
	} {
		if got := secure(c.auxv, c.err, c.idsDiffer); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestGet(t *testing.T) {
	t.Setenv("CULVERT_LIBCUDA", "libother.so")
	t.Setenv("XDG_CACHE_HOME", "/var/cache/other")
	defer func(was func() bool) { Secure = was }(Secure)
	Secure = func() bool { return false }
	if dir, err := CacheDir(); Get("CULVERT_LIBCUDA") != "libother.so" || dir != "/var/cache/other" || err != nil {
		t.Errorf("an ordinary program: %q, %q, %v", Get("CULVERT_LIBCUDA"), dir, err)
	}
	Secure = func() bool { return true }
	if dir, err := CacheDir(); Get("CULVERT_LIBCUDA") != "" || dir != "" || err == nil {
		t.Errorf("a program with other rights: %q, %q, %v", Get("CULVERT_LIBCUDA"), dir, err)
	}
}
