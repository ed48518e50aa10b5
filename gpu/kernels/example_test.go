package kernels_test

import (
	"fmt"

	"github.com/culvert-io/culvert/gpu/kernels"
)

func ExampleLookup() {
	k, ok := kernels.Lookup("culvert_fill")
	fmt.Println(ok, k.Params)
	// Output: true [8 8 8]
}
