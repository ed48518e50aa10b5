package ladder

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// TestPageCacheIsSpared: no staged route fills the page cache with a file that was opened
// with O_DIRECT, that is to avoid it, or that does not fit. What is there comes from there.
func TestPageCacheIsSpared(t *testing.T) {
	t.Setenv(nvfsSwitch, "0")
	userCache(t)
	const n, large = 256 << 10, 1 << 60
	for name, tt := range map[string]struct {
		flags int
		mode  route.CacheMode
		total int64
		why   string
	}{
		"O_DIRECT": {unix.O_DIRECT, route.CacheAuto, 0, storage.OpenedDirect},
		"avoid":    {0, route.CacheAvoid, 0, storage.AskedToAvoid},
		"large":    {0, route.CacheAuto, large, storage.TooLarge},
		"keep":     {0, route.CacheKeep, large, ""},
	} {
		for _, id := range []route.ID{route.Bar, route.Ring, route.Mapped, route.Host} {
			t.Run(name+", "+id.String(), func(t *testing.T) {
				w := newFixture(t)
				f := openedBy(t, tt.flags)
				f.Reads().SetMode(tt.mode, tt.total)
				p := w.ladder.Plan(FileSource(f)).keep(id, map[route.ID]route.ID{route.Bar: route.Ring, route.Mapped: route.Host}[id])
				if p.Best() != id {
					t.Skipf("needs the route: %v", p.declined)
				}
				w.src = FileSource(f)
				read := func() route.Receipt {
					res := make([]route.Receipt, 1)
					if err := p.Run(context.Background(), []Op{w.op(n)}, res); err != nil || res[0].Bytes != n {
						t.Fatalf("%v, %v", &res[0], err)
					}
					return res[0]
				}
				cold := read()
				there, err := f.Resident(0, n)
				if err != nil {
					t.Fatal(err)
				}
				if spared := tt.why != ""; spared != (there == 0) || spared && (cold.Cache != route.CacheUse{Bypassed: n, Why: tt.why}) {
					t.Errorf("cold: %v, %+v, and %d bytes are cached", cold.Route, cold.Cache, there)
				}
				if _, err := unix.Pread(f.Buffered(), make([]byte, n), 0); err != nil {
					t.Fatal(err)
				}
				if warm := read(); warm.Route != id || warm.Cache.Hit+warm.Cache.Unasked != n || tt.why != "" && warm.Cache.Unasked > 0 {
					t.Errorf("warm: %v, %+v", warm.Route, warm.Cache)
				}
			})
		}
	}
}

// openedBy is a cold file of 2 MiB that was opened with flags.
func openedBy(t *testing.T, flags int) *storage.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, noisy(2<<20, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	opened, err := os.OpenFile(path, os.O_RDWR|flags, 0)
	if err != nil {
		t.Skipf("needs a file system with O_DIRECT: %v", err)
	}
	defer opened.Close()
	f, err := storage.Adopt(int(opened.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.DropCache(); err != nil {
		t.Fatal(err)
	}
	if there, err := f.Resident(0, 2<<20); err != nil || there > 0 || f.Direct() < 0 {
		t.Skipf("needs cachestat, and a file system with O_DIRECT: %d bytes are cached, %v", there, err)
	}
	return f
}
