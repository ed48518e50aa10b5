package transfer

import (
	"context"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/culvert-io/culvert/internal/limit"
	"github.com/culvert-io/culvert/internal/object/objecttest"
	"github.com/culvert-io/culvert/route"
)

// A clock that moves when something waits, and by as much.
func jumpingClock() (limit.Clock, func() time.Duration) {
	var mu sync.Mutex
	begin := time.Unix(1_700_000_000, 0)
	now := begin
	clock := limit.Clock{
		Now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		},
		Sleep: func(_ context.Context, d time.Duration) error {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(d)
			return nil
		},
	}
	return clock, func() time.Duration { return clock.Now().Sub(begin) }
}

// Every byte of a copy counts for its limit.
func TestLimitRate(t *testing.T) {
	drv, dir := newDriver(t), t.TempDir()
	const size, rate = 5 << 20, 1 << 20 // in requests of an eighth of a second
	src, _ := writeFile(t, dir, size)
	clock, passed := jumpingClock()
	if _, err := Copy(context.Background(), drv, src, filepath.Join(dir, "dst"), Options{Limit: limit.NewAt(rate, clock)}); err != nil {
		t.Fatal(err)
	}
	if want := 5*time.Second - time.Second/8; passed() != want {
		t.Errorf("%d bytes at %d a second took %v, want %v", size, rate, passed(), want)
	}
}

// The rate of a copy with a limit counts the time that the limit takes.
func TestLimitedRateIsOfWallTime(t *testing.T) {
	drv, dir := newDriver(t), t.TempDir()
	src, _ := writeFile(t, dir, 1<<20)
	res, err := Copy(context.Background(), drv, src, filepath.Join(dir, "dst"), Options{Limit: limit.New(10 << 20)})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*route.Receipt{res.Read, res.Write} {
		if r.Time.Seconds() != res.Seconds {
			t.Errorf("%v took %v of %v seconds", r.Dir, r.Time, res.Seconds)
		}
	}
}

// The files of a directory share one limit.
func TestLimitRateOfADirectory(t *testing.T) {
	drv, src := newDriver(t), forest(t)
	tree, err := PlanTree(context.Background(), src, filepath.Join(t.TempDir(), "dst"), PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	clock, passed := jumpingClock()
	rate := limit.NewAt(1000, clock)
	res, err := tree.Copy(context.Background(), drv, TreeOptions{Options: Options{Limit: rate}, Jobs: 1})
	if err != nil {
		t.Fatal(err)
	}
	// What the last file used is the time that a later request would wait.
	if err := rate.Wait(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	if want := time.Duration(res.Bytes) * time.Millisecond; passed().Round(time.Millisecond) != want {
		t.Errorf("%d bytes at 1000 a second took %v, want %v", res.Bytes, passed(), want)
	}
}

// Objects keep to a limit in both directions.
func TestLimitRateOfObjects(t *testing.T) {
	drv := newDriver(t)
	store := objecttest.NewStore(nil)
	bucketAt(t, store)
	const size, rate = 3 << 20, 1 << 20
	src, _ := writeFile(t, t.TempDir(), size)
	for name, move := range map[string]func(Options) error{
		"upload": func(o Options) error {
			_, err := UploadFile(t.Context(), drv, src, "s3://bucket/a", o)
			return err
		},
		"read": func(o Options) error {
			srv := httptest.NewServer(objecttest.Files{"a": objecttest.Bytes(size, 3)})
			defer srv.Close()
			_, err := IntoGPU(t.Context(), drv, srv.URL+"/a", o)
			return err
		},
	} {
		clock, passed := jumpingClock()
		limited := limit.NewAt(rate, clock)
		if err := errors.Join(move(Options{Limit: limited}), limited.Wait(t.Context(), 1)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if passed() != 3*time.Second {
			t.Errorf("%s: %d bytes at %d a second took %v", name, size, rate, passed())
		}
	}
}
