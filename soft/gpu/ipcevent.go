package gpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft/internal/cards"
)

// An eventHandle is a CUipcEventHandle.
type eventHandle struct {
	Magic [8]byte
	PID   uint64
	Name  cards.EventName
}

var eventMagic = [8]byte([]byte("culevent"))

// NewSharedEvent creates an event without timing for which [Event.IPCHandle] returns a handle.
func (x *Device) NewSharedEvent() (*Event, error) {
	const op = "cuEventCreate(interprocess)"
	if err := x.check(op); err != nil {
		return nil, err
	}
	e := &Event{dev: x}
	if all := x.ctx.drv.cards; all != nil {
		var err error
		if e.shared, err = all.NewEvent(); err != nil {
			return nil, gpu.Fail(op, gpu.ErrOutOfMemory, err.Error())
		}
	}
	return e, nil
}

// IPCHandle returns the CUipcEventHandle of an event of NewSharedEvent. Processes with the same
// [Config.Shared] can open it.
func (e *Event) IPCHandle() (out [64]byte, err error) {
	if _, err := e.current("cuIpcGetEventHandle()"); err != nil {
		return out, err
	}
	h := eventHandle{Magic: eventMagic, PID: uint64(os.Getpid())}
	if e.shared != nil {
		h.Name = e.shared.Name()
	}
	var text bytes.Buffer
	_ = binary.Write(&text, binary.NativeEndian, h) // a Buffer returns no error
	copy(out[:], text.Bytes())
	return out, nil
}

// OpenEvent opens the event of a handle that another process made.
func (x *Device) OpenEvent(handle [64]byte) (*Event, error) {
	const op = "cuIpcOpenEventHandle()"
	if err := x.check(op); err != nil {
		return nil, err
	}
	var h eventHandle
	if _, err := binary.Decode(handle[:], binary.NativeEndian, &h); err != nil || h.Magic != eventMagic {
		return nil, gpu.Fail(op, gpu.ErrInvalidHandle, "not a handle of an event")
	}
	all := x.ctx.drv.cards
	switch {
	case all == nil && h.PID == uint64(os.Getpid()), all != nil && h.Name.Owner == all.Owner():
		return nil, gpu.Fail(op, gpu.ErrInvalidContext, "the handle is of this process, which has the event")
	case all == nil:
		return nil, gpu.Fail(op, gpu.ErrInvalidHandle, "this process shares GPUs with no other (fix: start both under one culvert run, or with the same CULVERT_SHARED)")
	}
	shared, err := all.OpenEvent(h.Name)
	if err != nil {
		return nil, gpu.Fail(op, gpu.ErrInvalidHandle, fmt.Sprintf("%v, by a process that has the same CULVERT_SHARED", err))
	}
	return &Event{dev: x, shared: shared}, nil
}

// recorderEnded is the error of a call that would wait for a process that has ended.
func recorderEnded(op string, err error) error {
	if errors.Is(err, cards.ErrRecorderEnded) {
		return gpu.Fail(op, gpu.ErrInvalidHandle, err.Error())
	}
	return err
}
