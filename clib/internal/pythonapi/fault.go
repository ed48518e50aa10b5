package pythonapi

import (
	"context"
	"errors"

	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/fault"
)

// A breakRequest has the faults of the software machine from now on; none if the
// specification is empty.
type breakRequest struct {
	Spec string `json:"spec"`
}

// A firedAnswer lists the faults that came about.
type firedAnswer struct {
	Fired []string `json:"fired"`
}

// breakMachine replaces the faults of the machine. Nothing may be transferred meanwhile.
func (a *API) breakMachine(_ context.Context, q *breakRequest) (struct{}, error) {
	specs, err := fault.Parse(q.Spec)
	if err != nil {
		return struct{}{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.openMachineLocked(); err != nil {
		return struct{}{}, err
	}
	s, ok := soft.Of(a.machine.GPU)
	if !ok {
		return struct{}{}, errors.New("only the software machine can be broken (fix: CULVERT_MACHINE=soft)")
	}
	if i, ok := a.machine.Faults.(*fault.Injector); ok {
		i.Stop()
	}
	if a.machine.Faults = nil; len(specs) > 0 {
		a.machine.Faults = fault.New(s, specs)
	}
	return struct{}{}, nil
}

// fired lists the faults that came about since the last request to break the machine.
func (a *API) fired(_ context.Context, _ *struct{}) (*firedAnswer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := &firedAnswer{Fired: []string{}}
	if a.machine == nil {
		return answer, nil
	}
	if i, ok := a.machine.Faults.(*fault.Injector); ok {
		answer.Fired = append(answer.Fired, i.Fired()...)
	}
	return answer, nil
}
