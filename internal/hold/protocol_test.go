package hold

import (
	"encoding/binary"
	"encoding/json"
	"net"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft"
)

// impostor answers one client with any bytes and descriptors.
func impostor(t *testing.T, reply []byte, descriptors int, room int64) string {
	t.Helper()
	path := socket(t)
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer c.Close()
		var h hello
		if _, err := receive(c, &h, maxHello); err != nil {
			t.Error(err)
		}
		var fds []int
		for range descriptors {
			fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC)
			if err != nil {
				t.Error(err)
				return
			}
			defer unix.Close(fd)
			if err := unix.Ftruncate(fd, room); err != nil {
				t.Error(err)
			}
			fds = append(fds, fd)
		}
		if len(reply) > 0 {
			_, _, _ = c.WriteMsgUnix(reply, unix.UnixRights(fds...), nil) // the client may be gone
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return path
}

func message(text string) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
}

// TestImpostors: whatever comes back, a client fails cleanly.
func TestImpostors(t *testing.T) {
	w := newWorld(t, soft.Config{})
	infos, err := w.Devices()
	if err != nil {
		t.Fatal(err)
	}
	id := infos[0].UUID.String()
	head := `{"protocol":"culvert-hold","version":1,"share":"copy",`
	buffers := `"buffers":[{"gpu":"` + id + `","bytes":1024}]}`
	list := func(fields string) []byte {
		return append(message(head+buffers), message(`[{"name":"w",`+fields+`}]`)...)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would close forgotten files
	before := openFiles(t)
	for _, tt := range []struct {
		name        string
		reply       []byte
		descriptors int
		want        string
	}{
		{"silence", nil, 0, "the server ended before it answered"},
		{"half a length", []byte{1, 2}, 0, "the server ended before it answered"},
		{"half a message", message("{}")[:5], 0, "unexpected EOF"},
		{"too long", binary.LittleEndian.AppendUint32(nil, 1<<31), 0, "exceeds the limit"},
		{"no JSON", message("hello"), 0, "invalid character"},
		{"another protocol", message(`{"protocol":"http","version":1}`), 0, `speaks "http" version 1`},
		{"another version", message(`{"protocol":"culvert-hold","version":2}`), 0, "version 2, this is"},
		{"an error", message(`{"protocol":"culvert-hold","version":1,"error":"I am tired"}`), 0, "the server says: I am tired"},
		{"no descriptors", message(head + buffers), 0, "1 buffers came with 0 descriptors"},
		{"too many descriptors", message(head + buffers), 3, "1 buffers came with 3 descriptors"},
		{"unknown share", message(strings.Replace(head, "copy", "telepathy", 1) + `"buffers":[]}`), 0, `unknown share "telepathy"`},
		{"unknown dtype", list(`"dtype":"F80","shape":[1],"buffer":0,"offset":0,"bytes":10`), 1, `unknown dtype "F80"`},
		{"no such buffer", list(`"dtype":"U8","shape":[1],"buffer":1,"offset":0,"bytes":1`), 1, "buffer 1 of 1"},
		{"negative buffer", list(`"dtype":"U8","shape":[1],"buffer":-1,"offset":0,"bytes":1`), 1, "buffer -1 of 1"},
		{"behind the end", list(`"dtype":"U8","shape":[1],"buffer":0,"offset":1024,"bytes":1`), 1, "is at 1024+1 of 1024"},
		{"sum wraps", list(`"dtype":"U8","shape":[1],"buffer":0,"offset":18446744073709551615,"bytes":2`), 1, "is at"},
		{"too many bytes", list(`"dtype":"F32","shape":[1],"buffer":0,"offset":0,"bytes":8`), 1, "has 8 bytes"},
		{"too few bytes", list(`"dtype":"F32","shape":[3],"buffer":0,"offset":0,"bytes":4`), 1, "has 4 bytes"},
		{"negative dimension", list(`"dtype":"F32","shape":[-1],"buffer":0,"offset":0,"bytes":4`), 1, "has 4 bytes"},
		{"nothing times less", list(`"dtype":"F32","shape":[0,-1],"buffer":0,"offset":0,"bytes":0`), 1, "has 0 bytes"},
		{"huge shape", list(`"dtype":"U8","shape":[4294967296,4294967296,16],"buffer":0,"offset":0,"bytes":0`), 1, "has 0 bytes"},
		{"half a list", append(message(head+buffers), message("[]")[:5]...), 1, "unexpected EOF"},
		{"an empty file", list(`"dtype":"U8","shape":[8],"buffer":0,"offset":0,"bytes":8`), 1, "only 0 came"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			room := int64(1024)
			if tt.name == "an empty file" {
				room = 0
			}
			a, err := Attach(t.Context(), impostor(t, tt.reply, tt.descriptors, room), w)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v; want %q", a, err, tt.want)
			}
		})
	}
	if n := openFiles(t); n > before {
		t.Errorf("%d descriptors became %d", before, n)
	}
}

// TestStrangers: whatever a client says, the server refuses it and goes on.
func TestStrangers(t *testing.T) {
	w := newWorld(t, soft.Config{})
	m, want := w.model(t, gpu.KindVirtual, 1)
	s, err := NewServer(m, w, ByDescriptor)
	if err != nil {
		t.Fatal(err)
	}
	path := serve(t, s)
	for name, says := range map[string][]byte{
		"nothing":         nil,
		"garbage":         []byte("GET / HTTP/1.1\r\n\r\n"),
		"a long hello":    binary.LittleEndian.AppendUint32(nil, maxHello+1),
		"half a hello":    message("{}")[:5],
		"another version": message(`{"protocol":"culvert-hold","version":7}`),
	} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c := conn.(*net.UnixConn)
		if len(says) > 0 {
			if _, err := c.Write(says); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		var a head
		files, err := receive(c, &a, maxAnswer)
		if len(files) > 0 {
			t.Errorf("%s: got %d descriptors", name, len(files))
		}
		closeAll(files)
		if name == "another version" && (err != nil || !strings.Contains(a.Error, "the client speaks")) {
			t.Errorf("%s: %v, %q", name, err, a.Error)
		}
		c.Close()
	}
	if s.Served() != 0 {
		t.Errorf("%d strangers were served", s.Served())
	}
	a, err := Attach(t.Context(), path, w)
	if err != nil {
		t.Fatal(err)
	}
	w.check(t, a, m, want)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// FuzzTensors: tensors that pass lie inside their buffers.
func FuzzTensors(f *testing.F) {
	f.Add([]byte(`[{"name":"a","dtype":"F32","shape":[2,2],"buffer":0,"offset":0,"bytes":16}]`), uint64(16))
	f.Add([]byte(`[{"dtype":"F4","shape":[3]}]`), uint64(0))
	f.Fuzz(func(t *testing.T, text []byte, size uint64) {
		var tensors []wireTensor
		if json.Unmarshal(text, &tensors) != nil || checkTensors(tensors, []wireBuffer{{Size: size}}) != nil {
			return
		}
		for _, x := range tensors {
			span := gpu.Span{Len: size}.Slice(x.Off, x.Len) // panics outside
			n := uint64(x.Dtype.Bits())
			for _, dim := range x.Shape {
				n *= uint64(dim)
			}
			if n != 8*span.Len {
				t.Errorf("%v has %d bytes", x, span.Len)
			}
		}
	})
}
