package transfer

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/internal/object/objecttest"
	_ "github.com/culvert-io/culvert/object"
)

func TestDownload(t *testing.T) {
	drv := newDriver(t)
	data := objecttest.Bytes(9<<20+5, 3)
	faults := &objecttest.Faults{Handler: objecttest.Files{"dir/a.bin": data, "empty": {}}}
	srv := httptest.NewServer(faults)
	defer srv.Close()
	dst := filepath.Join(t.TempDir(), "copy")
	res, err := Download(t.Context(), drv, srv.URL+"/dir/a.bin", dst, Options{Verify: true, Buffer: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dst); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the copy differs: %v", err)
	}
	from := &res.Read.Origin
	if !res.Verified || from.Store != srv.URL || from.Bytes < int64(len(data)) || from.Requests < 3 || from.Connections < 1 {
		t.Errorf("receipt %v", res.Read)
	}
	if res.Read.Host.Bytes != int64(len(data)) {
		t.Errorf("%d bytes went through host memory", res.Read.Host.Bytes)
	}
	if err := os.Chmod(dst, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Download(t.Context(), drv, srv.URL+"/empty", dst, Options{}); err != nil {
		t.Errorf("an empty object: %v", err)
	}
	if st, err := os.Stat(dst); err != nil || st.Size() != 0 {
		t.Errorf("an empty object has become %v, %v", st, err)
	}
	if st, err := os.Stat(dst); err != nil || st.Mode() != 0o640 {
		t.Errorf("the file that was replaced had mode 0640, the new one has %v (%v)", st.Mode(), err)
	}
}

// An object that changes during the copy leaves no file, and the old one as it was.
func TestDownloadFails(t *testing.T) {
	drv := newDriver(t)
	faults := &objecttest.Faults{Handler: objecttest.Files{"a": objecttest.Bytes(6<<20, 3)}}
	srv := httptest.NewServer(faults)
	defer srv.Close()
	faults.On(func(n int, _ *http.Request) objecttest.Fault {
		if n > 0 {
			return objecttest.Replace
		}
		return objecttest.None
	})
	dir := t.TempDir()
	dst := filepath.Join(dir, "copy")
	if err := os.WriteFile(dst, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Download(t.Context(), drv, srv.URL+"/a?sig=secret", dst, Options{})
	if err == nil || !strings.Contains(err.Error(), "replaced while it was read") || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
	if got, _ := os.ReadFile(dst); string(got) != "old" {
		t.Error("the old file was changed")
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("files left: %v", list)
	}
}

func TestIntoGPU(t *testing.T) {
	drv := newDriver(t)
	srv := httptest.NewServer(objecttest.Files{"a": objecttest.Bytes(5<<20, 3)})
	defer srv.Close()
	res, err := IntoGPU(t.Context(), drv, srv.URL+"/a", Options{})
	if err != nil || res.Read.Bytes != 5<<20 || res.Read.Origin.Bytes < 5<<20 {
		t.Errorf("%v, %v", res, err)
	}
}
