package check

import (
	"net/http/httptest"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/object/objecttest"
	"github.com/culvert-io/culvert/machine"
	_ "github.com/culvert-io/culvert/object"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

// An object has the routes through host memory, and says why it has no other.
func TestLookObject(t *testing.T) {
	m, err := machine.FromSoft(soft.Config{Memory: 64 << 20}, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	drv, err := cufile.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	defer drv.Close()
	srv := httptest.NewServer(objecttest.Files{"a": []byte("abc")})
	defer srv.Close()
	p, err := LookPath(m, drv, srv.URL+"/a?sig=secret", 0)
	if err != nil {
		t.Fatal(err)
	}
	if p.Best != route.Ring || p.Size != 3 || p.Facts.FS != srv.URL || p.File != srv.URL+"/a?..." || len(p.Declined) == 0 {
		t.Errorf("%+v", p)
	}
	if _, err := LookPath(m, drv, srv.URL+"/none", 0); err == nil {
		t.Error("an object that does not exist is found")
	}
}
