//go:build !amd64

package wc

import "testing"

func bothWays(t *testing.T, test func(t *testing.T)) { t.Run("plain", test) }
