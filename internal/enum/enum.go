// Package enum names the values of enumerations and finds the value of a name.
package enum

import (
	"fmt"
	"slices"
	"strings"
)

type unsigned interface{ ~uint8 | ~uint16 | ~uint32 }

// Name is the name of a value: names begins with that of 0. unknown is the format for
// other values, such as "state %d".
func Name[T unsigned](names []string, v T, unknown string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf(unknown, uint32(v))
}

// Parse is the inverse of Name. Names before first cannot be parsed.
func Parse[T unsigned](what string, names []string, first T, name string) (T, error) {
	i := slices.Index(names[first:], name)
	if i < 0 {
		return 0, fmt.Errorf("unknown %s %q (%ss: %s)", what, name, what, strings.Join(names[first:], ", "))
	}
	return first + T(i), nil
}
