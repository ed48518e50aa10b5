package replay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpumem"
	gdrabi "github.com/culvert-io/culvert/internal/abi/gdrdrv"
	memabi "github.com/culvert-io/culvert/internal/abi/gpumem"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/dev/gdrdrv"
	"github.com/culvert-io/culvert/internal/transcript"
	publicmachine "github.com/culvert-io/culvert/machine"
)

// unpinGdrdrv unpins without the client.
func unpinGdrdrv(n dev.Node, handle uint64) error {
	p := gdrabi.UnpinBufferParams{Handle: handle}
	return n.Ioctl(gdrabi.GDRDRV_IOC_UNPIN_BUFFER, unsafe.Pointer(&p))
}

// one is an operating system with one open node.
type one struct{ dev.Node }

func (o one) Open(string) (dev.Node, error) { return o.Node, nil }
func (o one) FS() fs.FS                     { return nil }

// clients opens nodes with a spy on each and a client on the spy.
type clients[C any] struct {
	dev.OS
	size  func(req uintptr, word func(int) uint64) int
	start func(dev.OS) (C, error)
	open  map[dev.Node]C
	// call is the client's call that sends the bytes of a step, or nil.
	call func(*transcript.Event, *transcript.Spy) func() error
}

// Ioctl lets the client send a request.
func (c *clients[C]) Ioctl(e *transcript.Event) (x transcript.Exchange, handled bool, err error) {
	spy, ok := e.Node.(*transcript.Spy)
	if !ok || e.Args.Pointer != "" || e.Args.Placement != "" || len(e.Sent) < 8 || strings.HasPrefix(e.Name, "child.") {
		return x, false, nil
	}
	send := c.call(e, spy)
	if send == nil {
		return x, false, nil
	}
	err = send()
	return spy.Last, true, err
}

func (c *clients[C]) Open(path string) (dev.Node, error) {
	n, err := c.OS.Open(path)
	if err != nil {
		return nil, err
	}
	spy := &transcript.Spy{Node: n, Size: c.size}
	if c.open[spy], err = c.start(one{spy}); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return spy, nil
}

// zero reports whether the fields of the answer are zero in the request.
func zero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// agree compares the client's result with the answer.
func agree(err, answered error, same bool) error {
	switch {
	case (err == nil) != (answered == nil) || err != nil && !errors.Is(err, answered) && !errors.Is(err, errors.Unwrap(answered)):
		return fmt.Errorf("the node returned %v, the client %w", answered, err)
	case err == nil && !same:
		return errors.New("the client misread the answer")
	}
	return nil
}

// A gdrdrvClient sends requests of gdrdrv through the client.
type gdrdrvClient struct {
	clients[*gdrdrv.Client]
	pins map[dev.Node]map[uint64]*gdrdrv.Pin
}

func newGdrdrvClient(o dev.OS) *gdrdrvClient {
	size := func(req uintptr, _ func(int) uint64) int { return gdrabi.ArgSize(req) }
	c := &gdrdrvClient{
		clients[*gdrdrv.Client]{OS: o, size: size, start: gdrdrv.Open, open: map[dev.Node]*gdrdrv.Client{}},
		map[dev.Node]map[uint64]*gdrdrv.Pin{},
	}
	c.call = c.send
	return c
}

func (c *gdrdrvClient) send(e *transcript.Event, spy *transcript.Spy) func() error {
	if len(e.Sent) != gdrabi.ArgSize(uintptr(e.Req)) {
		return nil
	}
	client := c.open[spy]
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(e.Sent[8*i:]) }
	out := func(i int) uint64 { return binary.LittleEndian.Uint64(spy.Last.Out[8*i:]) }
	switch e.Req {
	case gdrabi.GDRDRV_IOC_GET_VERSION:
		if zero(e.Sent) {
			return func() error {
				again, err := gdrdrv.Open(one{spy})
				return agree(err, spy.Last.Err, again != nil && again.Version() == client.Version())
			}
		}
	case gdrabi.GDRDRV_IOC_GET_ATTR:
		if zero(e.Sent[4:]) {
			return func() error {
				v, err := client.Attr(uint32(word(0)))
				return agree(err, spy.Last.Err, uint64(v) == out(0)>>32)
			}
		}
	case gdrabi.GDRDRV_IOC_PIN_BUFFER:
		if zero(e.Sent[16:]) {
			return func() error { return c.pinned(spy, 4)(client.Pin(word(0), word(1))) }
		}
	case gdrabi.GDRDRV_IOC_PIN_BUFFER_V2:
		if zero(e.Sent[20:]) {
			return func() error { return c.pinned(spy, 3)(client.PinFlags(word(0), word(1), uint32(word(2)))) }
		}
	default:
		if p := c.pins[spy][word(0)]; p != nil {
			return c.pinCall(e, spy, p, out)
		}
	}
	return nil
}

// pinned keeps a pin and compares its handle.
func (c *gdrdrvClient) pinned(spy *transcript.Spy, at int) func(*gdrdrv.Pin, error) error {
	return func(p *gdrdrv.Pin, err error) error {
		same := err == nil && p.Handle() == binary.LittleEndian.Uint64(spy.Last.Out[8*at:])
		if same {
			if c.pins[spy] == nil {
				c.pins[spy] = map[uint64]*gdrdrv.Pin{}
			}
			c.pins[spy][p.Handle()] = p
		}
		return agree(err, spy.Last.Err, same)
	}
}

// pinCall is a call on a pin that the client knows.
func (c *gdrdrvClient) pinCall(e *transcript.Event, spy *transcript.Spy, p *gdrdrv.Pin, out func(int) uint64) func() error {
	switch e.Req {
	case gdrabi.GDRDRV_IOC_UNPIN_BUFFER:
		return func() error {
			delete(c.pins[spy], p.Handle())
			return agree(p.Unpin(), spy.Last.Err, true)
		}
	case gdrabi.GDRDRV_IOC_GET_CB_FLAG:
		if zero(e.Sent[8:]) {
			return func() error {
				v, err := p.Revoked()
				return agree(err, spy.Last.Err, v == (uint32(out(1)) != 0))
			}
		}
	case gdrabi.GDRDRV_IOC_GET_INFO_V2:
		if zero(e.Sent[8:]) {
			return func() error {
				i, err := p.Info()
				return agree(err, spy.Last.Err, i.VA == out(1) && i.MappedSize == out(2) &&
					i.PageSize == uint32(out(3)) && uint32(i.Type) == uint32(out(5)))
			}
		}
	case gdrabi.GDRDRV_IOC_REQ_MAPPING_TYPE:
		if zero(e.Sent[12:]) {
			t := gdrabi.MappingType(binary.LittleEndian.Uint32(e.Sent[8:]))
			return func() error { return agree(p.RequestType(t), spy.Last.Err, true) }
		}
	}
	return nil
}

// A gpumemClient sends requests of gpumem through the client.
type gpumemClient struct {
	clients[*gpumem.Client]
	locks map[lockName]*gpumem.Lock
}

// A lockName is a lock of one open file; other files do not know it.
type lockName struct {
	spy    *transcript.Spy
	handle uint64
}

func openGpumem(o dev.OS) (*gpumem.Client, error) {
	return gpumem.Open(dev.With(&publicmachine.Machine{}, o))
}

func newGpumemClient(o dev.OS) *gpumemClient {
	size := func(req uintptr, word func(int) uint64) int {
		switch req {
		case memabi.IOCTL_GPUMEM_LOCK:
			return int(unsafe.Sizeof(memabi.Lock{}))
		case memabi.IOCTL_GPUMEM_UNLOCK:
			return int(unsafe.Sizeof(memabi.Unlock{}))
		case memabi.IOCTL_GPUMEM_STATE:
			return int(memabi.StateSize(min(word(1), 1<<16)))
		}
		return 0
	}
	c := &gpumemClient{
		clients[*gpumem.Client]{OS: o, size: size, start: openGpumem, open: map[dev.Node]*gpumem.Client{}},
		map[lockName]*gpumem.Lock{},
	}
	c.call = c.send
	return c
}

func (c *gpumemClient) send(e *transcript.Event, spy *transcript.Spy) func() error {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(e.Sent[8*i:]) }
	out := func(i int) uint64 { return binary.LittleEndian.Uint64(spy.Last.Out[8*i:]) }
	l := c.locks[lockName{spy, word(0)}]
	switch {
	case e.Req == memabi.IOCTL_GPUMEM_LOCK && len(e.Sent) == 32:
		// The client rounds the end up, and does not send empty ranges.
		if word(0) != 0 || word(3) != 0 || word(2) == 0 || (word(1)+word(2))%memabi.GPU_BOUND_SIZE != 0 {
			return nil
		}
		return func() error {
			l, err := c.open[spy].Lock(gpu.Addr(word(1)), word(2))
			if err == nil {
				c.locks[lockName{spy, l.Handle()}] = l
			}
			return agree(err, spy.Last.Err, err == nil && l.Handle() == out(0) && uint64(l.Len()) == out(3))
		}
	case e.Req == memabi.IOCTL_GPUMEM_STATE && l != nil && int(word(1)) == l.Len() && zero(e.Sent[16:]):
		return func() error {
			pages, err := l.Pages()
			same := err != nil || len(pages) == l.Len()
			for i, p := range pages {
				same = same && p == out(3+i)
			}
			return agree(err, spy.Last.Err, same)
		}
	case e.Req == memabi.IOCTL_GPUMEM_UNLOCK && l != nil:
		return func() error {
			delete(c.locks, lockName{spy, l.Handle()})
			return agree(l.Unlock(), spy.Last.Err, true)
		}
	}
	return nil
}
