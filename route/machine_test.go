package route

import "testing"

func TestMachineText(t *testing.T) {
	for _, m := range []Machine{UnknownMachine, RealMachine, SoftwareMachine} {
		text, err := m.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back Machine
		if err := back.UnmarshalText(text); err != nil || back != m {
			t.Errorf("%s is read as %v, %v", text, back, err)
		}
	}
	if err := new(Machine).UnmarshalText([]byte("other")); err == nil {
		t.Error("an unknown name was accepted")
	}
}
