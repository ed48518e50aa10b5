package ladder

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/route"
)

// An error that may be the direct route's own is none of a transfer that another route may
// make.
func TestErrorsOfDirectRoutes(t *testing.T) {
	src := FileSource(adopt(t, "data", nil))
	p := &p2pdmaRoute{peer: newPeerGPU(t), root: peerTree(src.File()).FS(), os: peerTree(src.File())}
	for what, explain := range map[string]func(ops []Op, err error) error{
		"p2pdma": func(ops []Op, err error) error { return p.explain(ops, 0, new(route.Receipt), err) },
		"vendor": func(ops []Op, err error) error { return libraryFailed(t.Context(), ops, 0, err) },
		"nvfs":   func(ops []Op, err error) error { return ambiguousToNextRoute(route.NVFS, ops, err) },
	} {
		ops := []Op{{Src: src}, {Src: src}}
		for _, errno := range []unix.Errno{unix.EIO, unix.EBUSY, unix.ENOMEM} {
			ops[1].passed = nil
			if err := explain(ops, errno); !isRejected(err) || len(ops[1].passed) != 1 || ops[1].passed[0].Evidence == "" {
				t.Errorf("%s, %v: %v, %v", what, errno, err, ops[1].passed)
			}
		}
		if err := explain(ops, unix.ENOSPC); isRejected(err) && what != "vendor" {
			t.Errorf("%s: %v", what, err)
		}
		ops[0].strict = true
		if err := explain(ops, unix.EIO); isRejected(err) || !errors.Is(err, unix.EIO) {
			t.Errorf("%s, required: %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := libraryFailed(ctx, []Op{{Src: src}}, 0, ctx.Err()); !errors.Is(err, context.Canceled) || isRejected(err) {
		t.Error(err)
	}
}
