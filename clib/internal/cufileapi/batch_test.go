package cufileapi

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/route"
)

// An event carries bytes or a negated errno, and the bytes that moved before the
// operating system stopped the transfer.
func TestEvent(t *testing.T) {
	full := &cufile.Error{Code: cufile.IOError, Err: unix.ENOSPC}
	for name, tt := range map[string]struct {
		e      cufile.Event
		status cufile.Status
		ret    int64
	}{
		"complete": {cufile.Event{Status: cufile.Complete, Receipt: route.Receipt{Bytes: 7}}, cufile.Complete, 7},
		"canceled": {cufile.Event{Status: cufile.Canceled}, cufile.Canceled, 0},
		"partial":  {cufile.Event{Status: cufile.Failed, Receipt: route.Receipt{Bytes: 7}, Err: full}, cufile.Complete, 7},
		"errno":    {cufile.Event{Status: cufile.Failed, Err: full}, cufile.Failed, -int64(unix.ENOSPC)},
		"code":     {cufile.Event{Status: cufile.Failed, Err: cufile.HandleNotRegistered}, cufile.Failed, -int64(unix.EIO)},
	} {
		tt.e.Cookie = cmem.Ptr(5)
		if got := event(&tt.e); got.Cookie != 5 || got.Status != int32(tt.status) || got.Ret != tt.ret {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A wild pointer, and any panic, outside of a call is an error.
func TestGuard(t *testing.T) {
	for _, tt := range []struct {
		fn   func() error
		want error
		text string
	}{
		{func() error { cmem.Probe(0xdead0000); return nil }, unix.EFAULT, "0xdead0000"},
		{func() error { panic("a mistake") }, unix.EFAULT, "a mistake"},
		{func() error { return unix.EIO }, unix.EIO, ""},
	} {
		if err := guard(tt.fn); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%v, want %v with %q", err, tt.want, tt.text)
		}
	}
	if err := guard(func() error { return nil }); err != nil {
		t.Error(err)
	}
}
