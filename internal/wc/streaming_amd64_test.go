package wc

import "testing"

// bothWays runs a test with the assembly and with the built-in copy.
func bothWays(t *testing.T, test func(t *testing.T)) {
	if streaming {
		t.Run("streaming", test)
	}
	defer func(s bool) { streaming = s }(streaming)
	streaming = false
	t.Run("plain", test)
}
