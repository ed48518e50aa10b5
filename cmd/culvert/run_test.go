package main

import (
	"slices"
	"testing"
)

func TestPreload(t *testing.T) {
	const asan = "ASAN_OPTIONS=verify_asan_link_order=0"
	env := []string{"HOME=/root", "LD_PRELOAD=/own.so", "LD_LIBRARY_PATH="}
	for _, tt := range []struct {
		soft bool
		want []string
	}{
		{false, []string{"HOME=/root", "LD_PRELOAD=/l/libcufile.so.0:/own.so", "LD_LIBRARY_PATH=/l", asan}},
		{true, []string{
			"HOME=/root",
			"LD_PRELOAD=/l/libcufile.so.0:/l/soft/libcuda.so.1:/l/soft/libcudart.so.13:/l/soft/libcudart.so.12:/l/soft/libculvert-dev.so:/own.so",
			"LD_LIBRARY_PATH=/l:/l/soft", asan,
		}},
	} {
		if got := preload(env, libraries("/l", tt.soft, false), "/l", tt.soft); !slices.Equal(got, tt.want) {
			t.Errorf("soft %t: %q, want %q", tt.soft, got, tt.want)
		}
	}
	if got := preload(nil, libraries("/l", false, false), "/l", false); !slices.Equal(got, []string{"LD_PRELOAD=/l/libcufile.so.0", "LD_LIBRARY_PATH=/l", asan}) {
		t.Errorf("an empty environment: %q", got)
	}
	if env[1] != "LD_PRELOAD=/own.so" {
		t.Error("the caller's environment was changed")
	}
}
