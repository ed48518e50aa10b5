package hold

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft"
)

// TestServerOfAnotherUser: a process attaches to servers of its own user, or of the
// one that it asks for.
func TestServerOfAnotherUser(t *testing.T) {
	w := newWorld(t, soft.Config{})
	m, want := w.model(t, gpu.KindVirtual, 1)
	s, err := NewServer(m, w, ByDescriptor)
	if err != nil {
		t.Fatal(err)
	}
	path := serve(t, s)
	other := os.Geteuid() + 1
	if _, err := AttachFrom(t.Context(), path, other, w); !errors.Is(err, ErrUser) || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "--from-user") {
		t.Errorf("user %d was asked for: %v", other, err)
	}
	if s.Served() != 0 {
		t.Error("the server was asked for a model that is not taken")
	}
	a, err := AttachFrom(t.Context(), path, os.Geteuid(), w)
	if err != nil {
		t.Fatal(err)
	}
	w.check(t, a, m, want)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestClientHelper connects as another user and prints the answer.
func TestClientHelper(t *testing.T) {
	path := os.Getenv("HOLD_TEST_SOCKET")
	if path == "" {
		t.Skip("needs a parent: TestClientOfAnotherUser starts it")
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := encode(hello{protocol, Version})
	if err == nil {
		err = send(c.(*net.UnixConn), text, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	var h head
	files, err := receive(c.(*net.UnixConn), &h, maxAnswer)
	t.Logf("%d descriptors, %q, %v", len(files), h.Error, err)
}

// TestClientOfAnotherUser: a server whose socket others may open serves its user all
// the same.
func TestClientOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: another user takes part")
	}
	w := newWorld(t, soft.Config{})
	m, _ := w.model(t, gpu.KindVirtual, 1)
	s, err := NewServer(m, w, ByDescriptor)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "hold")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := dir + "/s"
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextOf(t)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
	}()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestClientHelper$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "HOLD_TEST_SOCKET="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `0 descriptors, "this model is served to user 0 only, you are user 65534`) {
		t.Errorf("%v\n%s", err, out)
	}
	if s.Served() != 0 {
		t.Error("another user has the model")
	}
}

// TestOneCopy: however many clients come, the model is copied once, and no client
// changes what the next one gets.
func TestOneCopy(t *testing.T) {
	w, other := newWorld(t, soft.Config{}), newWorld(t, soft.Config{})
	m, want := w.model(t, gpu.KindDevice, 1)
	s, err := NewServer(m, w, ByCopy)
	if err != nil {
		t.Fatal(err)
	}
	path := serve(t, s)
	inodes := map[uint64]bool{}
	for range 3 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c := conn.(*net.UnixConn)
		text, err := encode(hello{protocol, Version})
		if err != nil {
			t.Fatal(err)
		}
		if err := send(c, text, nil); err != nil {
			t.Fatal(err)
		}
		var h head
		files, err := receive(c, &h, maxAnswer)
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(files[0].Fd()), &st); err != nil {
			t.Fatal(err)
		}
		inodes[st.Ino] = true
		if _, err := files[0].WriteAt([]byte("mine"), 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("a client may write: %v", err)
		}
		if err := files[0].Truncate(0); !errors.Is(err, unix.EPERM) {
			t.Errorf("a client may truncate: %v", err)
		}
		closeAll(files)
		c.Close()
	}
	if len(inodes) != 1 {
		t.Errorf("%d copies", len(inodes))
	}
	a, err := Attach(t.Context(), path, other)
	if err != nil {
		t.Fatal(err)
	}
	other.check(t, a, m, want)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestBoundedClients: a server answers a bounded number of clients at a time.
func TestBoundedClients(t *testing.T) {
	ctx, cancel := contextOf(t)
	var mu sync.Mutex
	var far []*net.UnixConn
	accepted := make(chan struct{}, 2*maxClients)
	accept := func() (*net.UnixConn, error) {
		near, c := pair(t)
		mu.Lock()
		far = append(far, c)
		mu.Unlock()
		accepted <- struct{}{}
		return near, nil
	}
	done := make(chan error, 1)
	go func() { done <- new(Server).serve(ctx, accept) }()
	for range maxClients {
		<-accepted
	}
	select {
	case <-accepted:
		t.Error("more clients than allowed are answered")
	case <-time.After(50 * time.Millisecond):
	}
	mu.Lock()
	far[0].Close() // one gives up
	mu.Unlock()
	select {
	case <-accepted:
	case <-time.After(time.Minute):
		t.Error("the next client does not get the free place")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, c := range far {
		c.Close()
	}
}

// pair returns the ends of a connection.
func pair(t *testing.T) (*net.UnixConn, *net.UnixConn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Error(err)
		}
		f.Close()
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// TestFullQueue: a client waits where so many others wait that no more may.
func TestFullQueue(t *testing.T) {
	path := socket(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	var waiting []net.Conn
	defer func() {
		for _, c := range waiting {
			c.Close()
		}
	}()
	for {
		c, err := net.Dial("unix", path)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, c)
	}
	if _, err := Listen(t.Context(), path); !errors.Is(err, ErrServed) {
		t.Errorf("a server with a full queue was taken for dead: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*retryDelay)
	defer cancel()
	if _, err := dial(ctx, path, time.Now().Add(time.Minute)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a client did not wait: %v", err)
	}
}

func TestUserID(t *testing.T) {
	for text, want := range map[string]int{"": os.Geteuid(), "0": 0, "65534": 65534, "root": 0} {
		if got, err := UserID(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"-1", "nobody has this name", "99999999999"} {
		if got, err := UserID(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}
