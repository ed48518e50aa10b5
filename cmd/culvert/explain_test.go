package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/culvert-io/culvert/internal/transfer"
)

// A copy that was stopped says what is kept, where, and how to continue.
func TestExplainKept(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := fmt.Errorf("cp a b: %w", &transfer.KeptError{Path: "/mnt/.b.culvert-part", Kept: 3 << 30, Of: 8 << 30, Err: ctx.Err()})
	want := "stopped with 3.0 GiB of 8.0 GiB copied, which are kept in /mnt/.b.culvert-part; to resume: culvert cp a b"
	if got := explain(ctx, err, []string{"cp", "a", "b"}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
