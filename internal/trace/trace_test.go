package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/culvert-io/culvert/route"
)

// A file is what a reader of the format sees.
type file struct {
	Unit   string            `json:"displayTimeUnit"`
	Base   int64             `json:"baseTimeNanoseconds"`
	Other  map[string]string `json:"otherData"`
	Events []struct {
		Name, Cat, Ph string
		TS, Dur       float64
		PID, TID      int
		Args          map[string]any
	} `json:"traceEvents"`
}

func write(t *testing.T, r *Recorder) (f file) {
	t.Helper()
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &f); err != nil {
		t.Fatalf("%v:\n%s", err, &out)
	}
	return f
}

func TestWrite(t *testing.T) {
	r := Start()
	var b *Buffer
	b = b.Use()
	transfer := Transfer{
		Dir: route.Write, GPU: 3, File: "/data/a \"b\"\n", Off: 4096, Requests: 2, Begin: 1500 * time.Nanosecond, End: 5 * time.Microsecond, Failed: true,
	}
	transfer.Add(&route.Receipt{Bytes: 60, Route: route.NVFS, By: route.ByRoute{route.NVFS: 60}})
	transfer.Add(&route.Receipt{Bytes: 40, Host: route.ByteCount{Bytes: 10}, Route: route.NVFS, By: route.ByRoute{route.NVFS: 30, route.Host: 10}})
	b.Transfer(transfer)
	b.Piece(Piece{Kind: Copy, Begin: time.Microsecond, End: 3 * time.Microsecond, Off: 8, Bytes: 7})
	r.Stop()
	f := write(t, r)
	if f.Base <= 0 || f.Other["dropped_events"] != "0" {
		t.Errorf("base %d, other %v", f.Base, f.Other)
	}
	var spans []string
	for _, e := range f.Events {
		if e.Ph == "X" {
			text, _ := json.Marshal(e.Args)
			spans = append(spans, e.Cat+" "+e.Name+" "+string(text))
			if e.Cat == "transfer" && (e.TS != 1.5 || e.Dur != 3.5) {
				t.Errorf("a transfer from %v for %v µs", e.TS, e.Dur)
			}
		}
	}
	want := []string{
		`transfer write a "b"` + "\n" + ` {"by_route":{"host":10,"nvfs":90},"bytes":100,"failed":true,"file":"/data/a \"b\"\n","gpu":3,"host_bytes":10,"offset":4096,"requests":2,"route":"nvfs"}`,
		`piece copy {"bytes":7,"offset":8}`,
	}
	if strings.Join(spans, "|") != strings.Join(want, "|") {
		t.Errorf("%q, want %q", spans, want)
	}
}

// Events of a track do not overlap, and as few tracks are used as possible.
func TestTracks(t *testing.T) {
	r := Start()
	var b *Buffer
	b = b.Use()
	for _, at := range [][2]time.Duration{{0, 10}, {5, 15}, {10, 20}, {12, 30}, {15, 16}, {20, 21}} {
		b.Piece(Piece{Kind: Read, Begin: at[0], End: at[1]})
		b.Piece(Piece{Kind: Wait, Begin: at[0], End: at[1]})
	}
	r.Stop()
	ends, names := map[int]float64{}, map[int]string{}
	for _, e := range write(t, r).Events {
		switch {
		case e.Name == "thread_name":
			names[e.TID] = e.Args["name"].(string)
		case e.Ph == "X":
			if e.TS < ends[e.TID] {
				t.Errorf("track %d has events that overlap at %v", e.TID, e.TS)
			}
			ends[e.TID] = e.TS + e.Dur
			if !strings.HasPrefix(names[e.TID], e.Name+" ") {
				t.Errorf("%s is on track %q", e.Name, names[e.TID])
			}
		}
	}
	if len(ends) != 6 {
		t.Errorf("%d tracks, want 3 of each kind", len(ends))
	}
}

// A recorder that is full counts what it drops.
func TestFull(t *testing.T) {
	r := start(1000)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var b *Buffer
			for range 500 {
				b = b.Use()
				b.Piece(Piece{})
			}
		})
	}
	wg.Wait()
	r.Stop()
	n := len(r.piecesOf(Read))
	if int64(n)+r.Dropped() != 2000 || n > 1000 || n < 1000-3*grantUnit {
		t.Errorf("%d events recorded and %d dropped", n, r.Dropped())
	}
	if f := write(t, r); f.Other["dropped_events"] == "0" {
		t.Errorf("%v", f.Other)
	}
}

// What is off costs nothing, and a buffer of an earlier recorder is not used again.
func TestOff(t *testing.T) {
	var b *Buffer
	if On() || b.Use() != nil {
		t.Error("it is on")
	}
	first := Start()
	b = b.Use()
	first.Stop()
	if On() || b.Use() != nil {
		t.Error("it is still on")
	}
	second := Start()
	defer second.Stop()
	if again := b.Use(); again == b || again.Use() != again {
		t.Error("the buffer of another recorder is used")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteError(t *testing.T) {
	r := Start()
	r.Stop()
	if err := r.Write(full{}); err == nil {
		t.Error("an error of the disk is not reported")
	}
}
