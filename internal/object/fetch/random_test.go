package fetch

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-io/culvert/internal/crc32c"
)

// Under random faults of the store, and with readers that are cancelled at random, a read
// that succeeds has the right bytes and their sum, every read ends, and no request is left.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) { randomFaults(t, rand.New(rand.NewPCG(seed, 1)), seed) })
	}
}

func randomFaults(t *testing.T, r *rand.Rand, seed uint64) {
	var mu sync.Mutex
	pick := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	f := &fake{data: contents(100_000)}
	f.act = func(int, context.Context, int64) behaviour {
		switch pick(12) {
		case 0:
			return behaviour{err: io.ErrClosedPipe, answer: time.Duration(pick(2000)) * time.Millisecond}
		case 1:
			return behaviour{err: refusal{Retry{Slow: true, After: time.Duration(pick(3)) * time.Second}}}
		case 2:
			return behaviour{err: refusal{Retry{Never: true}}, answer: time.Duration(pick(100)) * time.Millisecond}
		case 3:
			return behaviour{answer: time.Hour}
		case 4:
			return behaviour{piece: 1000, hang: 1 + pick(30_000)}
		case 5:
			return behaviour{piece: 1 + pick(3000), cut: 1 + pick(30_000)}
		case 6:
			return behaviour{piece: 100 + pick(1000), step: time.Duration(pick(200)) * time.Millisecond}
		}
		return behaviour{answer: time.Duration(pick(50)) * time.Millisecond}
	}
	p := New(Config{Connections: 1 + pick(4), Parts: pick(5), MinPart: 1 << 10, Attempts: 1 + pick(6)})
	var g sync.WaitGroup
	for range 12 {
		g.Go(func() {
			for range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				if pick(3) == 0 {
					time.AfterFunc(time.Duration(pick(5000))*time.Millisecond, cancel)
				}
				off := pick(90_000)
				got := make([]byte, 1+pick(10_000))
				var sum uint32
				err := p.Read(ctx, Range{Open: f.open, Buf: got, Off: int64(off), Counts: new(Counts), Sum: &sum})
				if want := f.data[off : off+len(got)]; err == nil && (!bytes.Equal(got, want) || sum != crc32c.Sum(want)) {
					t.Errorf("seed %d: wrong bytes or a wrong sum", seed)
				}
				cancel()
			}
		})
	}
	g.Wait()
	synctest.Wait()
	if f.now.Load() != 0 || p.flights.n != 0 {
		t.Errorf("seed %d: %d bodies are open, %d places are taken", seed, f.now.Load(), p.flights.n)
	}
}
