package transcript

import (
	"fmt"
	"unsafe"
)

// ioctl sends the recorded bytes, or lets the client send them, and compares
// every byte of the answer.
func (r *replay) ioctl(e *Event) (string, error) {
	n, err := r.node(e)
	if err != nil {
		return "", err
	}
	if e.In != nil {
		if err := r.buffers(e.In.Names()); err != nil {
			return "", err
		}
		if e.Sent, err = e.In.Fill(r.b); err != nil {
			return "", err
		}
	}
	if r.Client != nil {
		x, handled, err := r.Client.Ioctl(e)
		if err != nil {
			return fmt.Sprintf("client: %v", err), nil
		}
		if handled {
			e.Got.ByClient = true
			return r.exchanged(e, x), nil
		}
	}
	if spy, ok := n.(*Spy); ok {
		n = spy.Node // the spy would read arguments that cannot be read
	}
	arg, err := r.argument(e)
	if err != nil {
		return "", err
	}
	diff := e.answer(n.Ioctl(uintptr(e.Req), arg))
	if e.In == nil {
		return diff, nil
	}
	if e.Got.Out, err = r.arg.result(); err != nil {
		return err.Error(), nil
	}
	return r.compare(e, diff), nil
}

// argument is the pointer to pass.
func (r *replay) argument(e *Event) (unsafe.Pointer, error) {
	switch e.Args.Pointer {
	case "":
	case "0x0":
		return nil, nil
	default:
		return r.arg.bad(), nil
	}
	return r.arg.place(e.Sent, e.Args.Placement != "")
}

// exchanged compares the request and the answer of a client.
func (r *replay) exchanged(e *Event, x Exchange) string {
	if Number(x.Req) != e.Req {
		return fmt.Sprintf("client sent request %#x, want %#x", x.Req, e.Req)
	}
	// A client's argument ends where the module stops reading.
	if n := len(x.In); n > len(e.Sent) || string(x.In) != string(e.Sent[:n]) {
		return fmt.Sprintf("client sent %x, want %x", x.In, e.Sent)
	}
	diff := e.answer(x.Err)
	e.Got.Out = append(append([]byte{}, x.Out...), e.Sent[len(x.In):]...)
	return r.compare(e, diff)
}

// compare compares the argument after the call.
func (r *replay) compare(e *Event, diff string) string {
	if diff != "" || e.Out == nil {
		return diff
	}
	if err := e.Out.Match(e.Got.Out, r.b, volatile); err != nil {
		return err.Error()
	}
	return ""
}

// buffers allocates the memory that placeholders stand for.
func (r *replay) buffers(names []string) error {
	for _, name := range names {
		if _, known := r.b[name]; known || len(name) < 4 || name[:3] != "buf" || r.Buffer == nil {
			continue
		}
		addr, err := r.Buffer(name)
		if err != nil {
			return fmt.Errorf("memory for <%s>: %w", name, err)
		}
		r.b[name] = addr
	}
	return nil
}
