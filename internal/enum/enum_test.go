package enum

import "testing"

func TestNames(t *testing.T) {
	type colour uint8
	names := []string{"none", "red", "blue"}
	for v, want := range map[colour]string{0: "none", 2: "blue", 3: "colour 3", 255: "colour 255"} {
		if got := Name(names, v, "colour %d"); got != want {
			t.Errorf("Name(%d) = %q, want %q", v, got, want)
		}
	}
	for name, want := range map[string]colour{"red": 1, "blue": 2} {
		if got, err := Parse[colour]("colour", names, 1, name); got != want || err != nil {
			t.Errorf("Parse(%q) = %d, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "none", "Red"} {
		_, err := Parse[colour]("colour", names, 1, name)
		if want := `unknown colour "` + name + `" (colours: red, blue)`; err == nil || err.Error() != want {
			t.Errorf("Parse(%q): %v, want %s", name, err, want)
		}
	}
}
