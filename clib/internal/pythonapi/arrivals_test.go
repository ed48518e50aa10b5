package pythonapi

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/tensor"
)

// What has arrived stays of use when the load is stopped: it is saved, as it is copied.
func TestSaveOfAStoppedLoad(t *testing.T) {
	tensors := []tensor.Tensor{{Name: "a"}, {Name: "b"}}
	c := newCaller(t)
	m := &loaded{tensors: tensors, arrivals: newArrivals(tensors), device: c.Device, done: make(chan struct{}), err: context.Canceled}
	close(m.done)
	m.arrivals.add(&tensors[0])
	id, err := c.add(m, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, context.Canceled} {
		if _, err := c.source(t.Context(), &saveTensor{Memory: id, Index: i}); !errors.Is(err, want) {
			t.Errorf("tensor %d: %v, want %v", i, err, want)
		}
	}
}

// Every tensor is reported once, those of one name on two GPUs too, and the end is
// seen after the last of them.
func TestArrivals(t *testing.T) {
	tensors := []tensor.Tensor{
		{Name: "a", Span: gpu.Span{Dev: 0}}, {Name: "b", Span: gpu.Span{Dev: 0}}, {Name: "a", Span: gpu.Span{Dev: 1}},
	}
	m := &loaded{
		tensors: tensors, arrivals: newArrivals(tensors), done: make(chan struct{}),
		progress: func() int64 { return 7 }, total: 9,
	}
	c := newCaller(t)
	id, err := c.add(m, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	ask := func(seen int) arrivedAnswer {
		var ans arrivedAnswer
		c.call("arrived", fields{"memory": id, "seen": seen, "milliseconds": 0}, &ans)
		return ans
	}
	if ans := ask(0); len(ans.Arrived) != 0 || ans.Ended || ans.Bytes != 7 || ans.Total != 9 {
		t.Errorf("before any arrival: %+v", ans)
	}
	m.arrivals.add(&tensors[2])
	m.arrivals.add(&tensors[0])
	if ans := ask(0); !slices.Equal(ans.Arrived, []int{2, 0}) || ans.Ended {
		t.Errorf("after two: %+v", ans)
	}
	if err := m.waitFor(context.Background(), 2); err != nil { // does not wait for the others
		t.Error(err)
	}
	// A caller that waits is woken by an arrival.
	c.Begin(1, request(t, "arrived", fields{"memory": id, "seen": 2, "milliseconds": 5000}))
	m.arrivals.add(&tensors[1])
	var ans arrivedAnswer
	reply, ok := c.wait(1)
	if err := json.Unmarshal(reply, &ans); err != nil || !ok {
		t.Fatalf("%s: %v", reply, err)
	}
	if !slices.Equal(ans.Arrived, []int{1}) {
		t.Errorf("woken with %+v", ans)
	}
	close(m.done)
	if ans := ask(3); len(ans.Arrived) != 0 || !ans.Ended {
		t.Errorf("at the end: %+v", ans)
	}
	if ans := ask(99); len(ans.Arrived) != 0 {
		t.Errorf("tensors that do not exist: %+v", ans)
	}
}
