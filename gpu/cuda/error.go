package cuda

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

// check is nil for Success, else the error for a call of s with args. Calls on
// the hot path compare the code themselves: args are allocated.
func (d *Driver) check(s *symbol, c gpu.Code, args ...any) error {
	if c == gpu.Success {
		return nil
	}
	return d.fail(s, c, "", args...)
}

// fail is the error for a call of s with args that returned code c.
func (d *Driver) fail(s *symbol, c gpu.Code, detail string, args ...any) error {
	texts := make([]string, len(args))
	for i, a := range args {
		texts[i] = fmt.Sprint(a)
	}
	if s.fn == 0 {
		detail = fmt.Sprintf("%s (CUDA %s) lacks this function, which needs CUDA %s: install a newer driver",
			d.path, versionText(d.Version()), s.since)
	} else if _, known := abi.DriverResult(int32(c)); detail == "" && !known {
		detail = strings.Trim(text(&d.symbols.cuGetErrorName, uintptr(c))+": "+text(&d.symbols.cuGetErrorString, uintptr(c)), ": ")
	}
	return gpu.Fail(s.name+"("+strings.Join(texts, ", ")+")", c, detail)
}

// versionText prints 12080 as 12.8.
func versionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// A caller is a Driver, or a Device, which calls with its context current.
type caller interface {
	call(s *symbol, args ...uintptr) gpu.Code
	check(s *symbol, c gpu.Code, args ...any) error
}

// get calls s, whose first parameter points to its result. The other arguments
// are integers of any type; the error shows them.
func get[T any](d caller, s *symbol, args ...any) (result T, err error) {
	v := new(T)
	words := []uintptr{ref(v)}
	for _, a := range args {
		words = append(words, word(a))
	}
	if err := d.check(s, d.call(s, words...), args...); err != nil {
		return result, err
	}
	return *v, nil
}

func word(a any) uintptr {
	v := reflect.ValueOf(a)
	if v.CanInt() {
		return uintptr(v.Int())
	}
	return uintptr(v.Uint())
}
