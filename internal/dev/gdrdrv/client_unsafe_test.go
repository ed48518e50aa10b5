package gdrdrv

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	abi "github.com/culvert-io/culvert/internal/abi/gdrdrv"
	"github.com/culvert-io/culvert/internal/dev"
)

// A fake is an operating system whose node answers as it is told.
type fake struct {
	open   error
	ioctl  func(req uintptr, arg []byte) error
	mmap   func(off int64, n int) (dev.Mapping, error)
	closed int
	sent   []uintptr
}

func (f *fake) FS() fs.FS { return nil }

func (f *fake) Open(path string) (dev.Node, error) {
	if f.open != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: f.open}
	}
	return f, nil
}

func (f *fake) Ioctl(req uintptr, arg unsafe.Pointer) error {
	f.sent = append(f.sent, req)
	b := unsafe.Slice((*byte)(arg), abi.ArgSize(req))
	if req == abi.GDRDRV_IOC_GET_VERSION && f.ioctl == nil {
		return version(b, abi.GDRDRV_VERSION, abi.MINIMUM_GDR_API_VERSION)
	}
	return f.ioctl(req, b)
}

func version(b []byte, v, least uint32) error {
	binary.LittleEndian.PutUint32(b, v)
	binary.LittleEndian.PutUint32(b[4:], least)
	return nil
}

func (f *fake) Mmap(off int64, n, _ int) (dev.Mapping, error) { return f.mmap(off, n) }
func (f *fake) Fd() int                                       { return 3 }
func (f *fake) Close() error                                  { f.closed++; return nil }

type heap struct{ unmapped, fails int }

func (m *heap) Addr() uintptr { return 0 }
func (m *heap) Len() int      { return 0 }
func (m *heap) Unmap() error {
	if m.unmapped++; m.unmapped <= m.fails {
		return syscall.ENOMEM
	}
	return nil
}

func TestOpen(t *testing.T) {
	for _, tc := range []struct {
		f    *fake
		is   error
		text string
	}{
		{&fake{open: syscall.ENOENT}, fs.ErrNotExist, "modprobe gdrdrv"},
		{&fake{open: syscall.EACCES}, fs.ErrPermission, "access to the device node"},
		{&fake{open: syscall.EIO}, syscall.EIO, "/dev/gdrdrv"},
		{&fake{ioctl: func(uintptr, []byte) error { return syscall.ENOTTY }}, syscall.ENOTTY, "version"},
		{&fake{ioctl: func(_ uintptr, b []byte) error { return version(b, 3<<16, 0) }}, errors.ErrUnsupported, "3.0"},
		{&fake{ioctl: func(_ uintptr, b []byte) error { return version(b, 2<<16|99, 2<<16|50) }}, errors.ErrUnsupported, "2.50 or later"},
	} {
		_, err := Open(tc.f)
		if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%v, want %v with %q", err, tc.is, tc.text)
		}
		if tc.f.open == nil && tc.f.closed != 1 {
			t.Errorf("%v: the node was closed %d times", err, tc.f.closed)
		}
	}
	c, err := Open(&fake{})
	if err != nil || c.Version().String() != "2.6" {
		t.Errorf("version %+v, %v", c.Version(), err)
	}
}

// module answers as the module does, as far as it is needed here.
func module(interrupted int, v1 bool) func(uintptr, []byte) error {
	next := uint64(0)
	return func(req uintptr, b []byte) error {
		if interrupted > 0 {
			interrupted--
			return syscall.EINTR
		}
		switch req {
		case abi.GDRDRV_IOC_GET_VERSION:
			return version(b, abi.GDRDRV_VERSION, 0)
		case abi.GDRDRV_IOC_PIN_BUFFER:
			binary.LittleEndian.PutUint64(b[32:], next)
			next += 16
		case abi.GDRDRV_IOC_GET_INFO_V2:
			if v1 {
				return syscall.ENOTTY
			}
		case abi.GDRDRV_IOC_GET_INFO:
			binary.LittleEndian.PutUint32(b[28:], 2_000_000) // kHz
			binary.LittleEndian.PutUint64(b[32:], 4_000_000) // cycles
			b[40] = 1
			b[44] = byte(binary.LittleEndian.Uint64(b)) // the second pin, handle 16
		}
		return nil
	}
}

func TestInterruptedCallsAreRepeated(t *testing.T) {
	c, err := Open(&fake{ioctl: module(3, false)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A module before 2.4 knows the first form of GET_INFO alone.
func TestInfoOfOldModules(t *testing.T) {
	c, err := Open(&fake{ioctl: module(0, true)})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []abi.MappingType{abi.GDR_MAPPING_TYPE_CACHING, abi.GDR_MAPPING_TYPE_WC} {
		p, err := c.Pin(0x10000, 1)
		if err != nil {
			t.Fatal(err)
		}
		i, err := p.Info()
		if err != nil || i.Type != want {
			t.Errorf("info %+v, %v, want type %d", i, err, want)
		}
	}
}

// The client never sends a handle that it gave back, and cleans up.
func TestLifeOfPins(t *testing.T) {
	m := &heap{}
	f := &fake{ioctl: module(0, false), mmap: func(int64, int) (dev.Mapping, error) { return m, nil }}
	c, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Pin(0x20000, 0x10000)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Unpin(); err != nil {
		t.Fatal(err)
	}
	sent := len(f.sent)
	_, infoErr := p.Info()
	_, flagErr := p.Revoked()
	_, mapErr := p.Map(1, 0)
	for name, err := range map[string]error{"info": infoErr, "flag": flagErr, "map": mapErr, "type": p.RequestType(0), "unpin": p.Unpin()} {
		if !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), "0x20000+0x10000") {
			t.Errorf("%s after unpin: %v", name, err)
		}
	}
	if len(f.sent) != sent {
		t.Errorf("%d requests were sent for a pin that is gone", len(f.sent)-sent)
	}
	mapped, err := c.Pin(0x30000, 0x10000)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mapped.Map(4096, 0); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil || m.unmapped != 1 || f.closed != 1 || f.sent[len(f.sent)-1] != abi.GDRDRV_IOC_UNPIN_BUFFER {
		t.Errorf("close: %v, unmapped %d times, closed %d times", err, m.unmapped, f.closed)
	}
	if err := c.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	if _, err := c.Pin(0x30000, 1); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("pin after close: %v", err)
	}
}

// What cannot be unmapped stays pinned.
func TestUnmapFails(t *testing.T) {
	m := &heap{fails: 1}
	f := &fake{ioctl: module(0, false), mmap: func(int64, int) (dev.Mapping, error) { return m, nil }}
	c, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Pin(0x30000, 0x10000)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Map(4096, 0); err != nil {
		t.Fatal(err)
	}
	sent := len(f.sent)
	if err := p.Unpin(); !errors.Is(err, syscall.ENOMEM) || len(f.sent) != sent {
		t.Errorf("unpin: %v, %d requests", err, len(f.sent)-sent)
	}
	if err := p.Unpin(); err != nil {
		t.Errorf("second try: %v", err)
	}
}

func TestPinAround(t *testing.T) {
	var sent abi.PinBufferParams
	next := module(0, false)
	f := &fake{ioctl: func(req uintptr, b []byte) error {
		if req == abi.GDRDRV_IOC_PIN_BUFFER {
			sent.Addr, sent.Size = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		}
		return next(req, b)
	}}
	c, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	_, off, err := c.PinAround(0x51234, 0x100)
	if err != nil || off != 0x1234 || sent.Addr != 0x50000 || sent.Size != 0x1334 {
		t.Errorf("offset %#x in a pin of %#x+%#x, %v", off, sent.Addr, sent.Size, err)
	}
}

// Whatever a module answers, the client neither panics nor believes it blindly.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), uint8(0))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, uint8(3))
	f.Fuzz(func(t *testing.T, answer []byte, fails uint8) {
		n := uint8(0)
		o := &fake{
			ioctl: func(req uintptr, b []byte) error {
				if req == abi.GDRDRV_IOC_GET_VERSION {
					return version(b, abi.GDRDRV_VERSION, 0)
				}
				copy(b, answer)
				if n++; fails != 0 && n%fails == 0 {
					return syscall.EINVAL
				}
				return nil
			},
			mmap: func(off int64, _ int) (dev.Mapping, error) {
				if off < 0 {
					t.Errorf("mapped at %d", off)
				}
				return &heap{}, nil
			},
		}
		c, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if p, _, err := c.PinAround(0x51234, 0x100); err == nil {
			_, _ = p.Info()
			_, _ = p.Revoked()
			_, _ = p.Map(4096, 0)
			_ = p.RequestType(1)
		}
		_, _ = c.PinFlags(0x50000, 1, 1)
		_, _ = c.Attr(1)
		_ = c.Close()
	})
}
