package handle_test

import (
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/clib/internal/handle"
)

func TestStale(t *testing.T) {
	tab := handle.NewTable[int](1)
	id, _ := tab.Add(42)
	if v, ok := tab.Get(id); v != 42 || !ok {
		t.Fatalf("Get = %d, %v", v, ok)
	}
	if _, ok := tab.Remove(id); !ok {
		t.Fatal("Remove found nothing")
	}
	// Slots are reused; the old ID must stay invalid.
	for range 1000 {
		next, _ := tab.Add(7)
		if next == id {
			t.Fatal("an ID was given twice")
		}
		if _, ok := tab.Get(id); ok {
			t.Fatal("a removed ID was found")
		}
		tab.Remove(next)
	}
	if _, ok := tab.Remove(id); ok {
		t.Error("an ID was removed twice")
	}
}

func TestForeign(t *testing.T) {
	a, b := handle.NewTable[int](1), handle.NewTable[int](2)
	id, _ := a.Add(1)
	b.Add(1)
	if _, ok := b.Get(id); ok {
		t.Error("a table found an ID of another one")
	}
	for _, id := range []handle.ID{0, 1, 2, 0x7fff_dead_beef, ^handle.ID(0)} {
		if _, ok := a.Get(id); ok {
			t.Errorf("found %#x, which was made up", id)
		}
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := handle.NewTable[int](3)
		live := map[handle.ID]int{}
		var dead []handle.ID
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				v := rapid.Int().Draw(t, "v")
				id, ok := tab.Add(v)
				if _, twice := live[id]; !ok || twice {
					t.Fatalf("Add gave %#x, %v", id, ok)
				}
				live[id] = v
			},
			"remove": func(t *rapid.T) {
				for id, want := range live {
					if v, ok := tab.Remove(id); !ok || v != want {
						t.Fatalf("Remove = %d, %v; want %d", v, ok, want)
					}
					delete(live, id)
					dead = append(dead, id)
					return
				}
			},
			"": func(t *rapid.T) {
				for id, want := range live {
					if v, ok := tab.Get(id); !ok || v != want {
						t.Fatalf("Get = %d, %v; want %d", v, ok, want)
					}
				}
				for _, id := range dead {
					if _, ok := tab.Get(id); ok {
						t.Fatalf("found %#x, which was removed", id)
					}
				}
			},
		})
	})
}

func TestConcurrent(t *testing.T) {
	tab := handle.NewTable[int](1)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				id, ok := tab.Add(g*1000 + i)
				if !ok {
					t.Error("full")
					return
				}
				if v, ok := tab.Get(id); !ok || v != g*1000+i {
					t.Errorf("Get = %d, %v", v, ok)
				}
				if _, ok := tab.Remove(id); !ok {
					t.Error("lost")
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkGet(b *testing.B) {
	tab := handle.NewTable[int](1)
	id, _ := tab.Add(1)
	for b.Loop() {
		tab.Get(id)
	}
}

// A stale handle is distinguished from one that was never given out.
func TestStaleOrMadeUp(t *testing.T) {
	tab := handle.NewTable[int](3)
	id, _ := tab.Add(1)
	if tab.Stale(id) {
		t.Error("a live handle is stale")
	}
	tab.Remove(id)
	if !tab.Stale(id) {
		t.Error("a removed handle is not stale")
	}
	other := handle.NewTable[int](4)
	foreign, _ := other.Add(1)
	for _, made := range []handle.ID{0, 1, id + 1, id + 1<<20, foreign, 0x7fff12345678, ^handle.ID(0)} {
		if tab.Stale(made) {
			t.Errorf("%#x was made up", made)
		}
	}
}
