package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/culvert-io/culvert/route"
)

// A stream may end anywhere in a half of the buffer, and at its boundary.
func TestStreams(t *testing.T) {
	drv := newDriver(t)
	dir := t.TempDir()
	o := Options{Buffer: 1 << 20, Verify: true}
	for _, n := range []int{0, 1, 1<<19 - 1, 1 << 19, 1<<20 + 1, 3<<20 + 5} {
		src, data := writeFile(t, dir, n)
		dst := filepath.Join(dir, "dest")
		res, err := CopyIn(t.Context(), drv, iotest.HalfReader(bytes.NewReader(data)), dst, o)
		if got, _ := os.ReadFile(dst); err != nil || !bytes.Equal(got, data) || !res.Verified {
			t.Errorf("%d bytes in: %d, %+v, %v", n, len(got), res, err)
		}
		if r := res.Read; err == nil && (r.Bytes != int64(n) || r.By[route.Host] != r.Bytes || r.Host.Bytes != r.Bytes) {
			t.Errorf("%d bytes in: %v", n, r)
		}
		var out bytes.Buffer
		res, err = CopyOut(t.Context(), drv, src, &out, o)
		if err != nil || !bytes.Equal(out.Bytes(), data) || !res.Verified || res.Write.By[route.Host] != int64(n) {
			t.Errorf("%d bytes out: %d, %+v, %v", n, out.Len(), res, err)
		}
		out.Reset()
		res, err = CopyThrough(t.Context(), drv, bytes.NewReader(data), &out, o)
		if err != nil || !bytes.Equal(out.Bytes(), data) || !res.Verified || res.Bytes != int64(n) {
			t.Errorf("%d bytes through: %d, %+v, %v", n, out.Len(), res, err)
		}
	}
}

// stuck is a pipe that nothing writes to. The command is stopped when it is read.
type stuck struct {
	stop    context.CancelFunc
	release chan struct{}
}

func (s stuck) Read([]byte) (int, error) {
	s.stop()
	<-s.release
	return 0, io.EOF
}

// A stream that fails or is stopped leaves the old file and no other.
func TestStreamFails(t *testing.T) {
	drv := newDriver(t)
	dir := t.TempDir()
	dst := filepath.Join(dir, "dest")
	if err := os.WriteFile(dst, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	ctx, cancel := context.WithCancel(t.Context())
	blocked := stuck{cancel, make(chan struct{})}
	defer close(blocked.release)
	for name, c := range map[string]struct {
		ctx  context.Context
		in   io.Reader
		want error
	}{
		"error":   {t.Context(), io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), iotest.ErrReader(broken)), broken},
		"stopped": {ctx, io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), blocked), context.Canceled},
	} {
		if _, err := CopyIn(c.ctx, drv, c.in, dst, Options{Buffer: 1 << 20}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if got, _ := os.ReadFile(dst); string(got) != "old" {
			t.Errorf("%s: the file has %d bytes", name, len(got))
		}
		if list, _ := os.ReadDir(dir); len(list) != 1 {
			t.Errorf("%s: files left: %v", name, list)
		}
	}
}

// lossy is a stream that accepts n bytes.
type lossy struct{ n int }

func (l *lossy) Write(p []byte) (int, error) {
	if len(p) > l.n {
		return l.n, io.ErrClosedPipe
	}
	l.n -= len(p)
	return len(p), nil
}

func TestStreamIsNotTaken(t *testing.T) {
	drv := newDriver(t)
	src, _ := writeFile(t, t.TempDir(), 3<<20)
	res, err := CopyOut(t.Context(), drv, src, &lossy{2<<20 + 7}, Options{Buffer: 1 << 20})
	if !errors.Is(err, io.ErrClosedPipe) || res.Write.Bytes != 2<<20+7 {
		t.Errorf("%v, %v", res.Write, err)
	}
}

func TestStreamVerification(t *testing.T) {
	var res Result
	if err := res.compare(1, 2); !errors.Is(err, ErrDiffers) || res.Verified {
		t.Errorf("%+v, %v", res, err)
	}
}

// A stream has one route.
func TestStreamRoutes(t *testing.T) {
	drv := newDriver(t)
	for id, ok := range map[route.ID]bool{route.Host: true, route.Ring: false, route.NVFS: false} {
		for _, o := range []Options{{Route: id}, {Require: id}} {
			_, err := CopyThrough(t.Context(), drv, bytes.NewReader(make([]byte, 5)), io.Discard, o)
			if _, refused := errors.AsType[*route.RequireError](err); refused == ok || ok && err != nil {
				t.Errorf("%v: %v", id, err)
			}
		}
	}
}
