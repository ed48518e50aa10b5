package hold

import (
	"bytes"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft"
)

func golden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/formats/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestServerFormats attaches to a server of each released version. A later one is
// refused: see "another version" in TestImpostors and TestStrangers.
func TestServerFormats(t *testing.T) {
	w := newWorld(t, soft.Config{})
	infos, err := w.Devices()
	if err != nil {
		t.Fatal(err)
	}
	answer := string(golden(t, "v1/server.bin"))
	const recorded = "GPU-374708ff-f771-9dd5-979e-c875d56cd228" // UUIDs have one length
	answer = strings.Replace(answer, recorded, infos[0].UUID.String(), 1)
	a, err := Attach(t.Context(), impostor(t, []byte(answer), 1, 2<<20), w)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if a.Name != "model.safetensors" || a.Metadata["format"] != "pt" || a.Share != ByCopy || len(a.Tensors) != 2 {
		t.Fatalf("version 1: %+v", a)
	}
	norm := a.Tensors[1]
	if norm.Name != "norm.weight" || norm.Dtype != "BF16" || len(norm.Shape) != 1 || norm.Shape[0] != 5 || norm.Span.Off != 256 || norm.Span.Len != 10 {
		t.Errorf("version 1: %+v", norm)
	}
}

// TestClientFormats serves a client of each released version.
func TestClientFormats(t *testing.T) {
	w := newWorld(t, soft.Config{})
	m, _ := w.model(t, gpu.KindVirtual, 1)
	s, err := NewServer(m, w, ByDescriptor)
	if err != nil {
		t.Fatal(err)
	}
	hello := golden(t, "v1/client.bin")
	for _, tt := range []struct {
		says []byte
		want string // of the error; empty if it is served
	}{
		{hello, ""},
		{bytes.Replace(hello, []byte(`"version":1`), []byte(`"version":2`), 1), "version 2"},
	} {
		conn, err := net.Dial("unix", serve(t, s))
		if err != nil {
			t.Fatal(err)
		}
		c := conn.(*net.UnixConn)
		if _, err := c.Write(tt.says); err != nil {
			t.Fatal(err)
		}
		var h head
		files, err := receive(c, &h, maxAnswer)
		closeAll(files)
		c.Close()
		if err != nil || (h.Error == "") != (tt.want == "") || !strings.Contains(h.Error, tt.want) {
			t.Errorf("%q: %+v, %v", tt.says, h, err)
		}
	}
}
