package route

import "testing"

func TestArrivalText(t *testing.T) {
	for want := NotDirect; want <= ArrivalProved; want++ {
		text, err := want.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got Arrival
		if err := got.UnmarshalText(text); err != nil || got != want {
			t.Errorf("%q is read as %v, %v", text, got, err)
		}
	}
	if err := new(Arrival).UnmarshalText([]byte("hoped")); err == nil {
		t.Error("an unknown arrival is accepted")
	}
}
