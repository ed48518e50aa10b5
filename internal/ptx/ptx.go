// Package ptx reads the kernels and parameters that PTX text declares, and
// encodes kernel arguments. CUDA takes arguments as untyped pointers, so both
// GPU drivers check their number and sizes against the text.
package ptx

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Kernel is an entry function as PTX text declares it.
type Kernel struct {
	Name   string
	Params []int // sizes in bytes
}

var (
	ptxComment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	ptxEntry   = regexp.MustCompile(`\.entry\s+([A-Za-z_$][\w$]*)\s*(\([^)]*\))?`)
	ptxParam   = regexp.MustCompile(`\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]+)(\d+)[^\[,)]*(?:\[(\d+)\])?`)
)

// maxParam is CUDA's limit on the parameters of a kernel, in bytes.
const maxParam = 32764

// Parse lists the kernels of a PTX text.
func Parse(text []byte) ([]Kernel, error) {
	src := ptxComment.ReplaceAllString(strings.TrimRight(string(text), "\x00"), " ")
	if !strings.Contains(src, ".version") || !strings.Contains(src, ".target") {
		return nil, fmt.Errorf("not PTX: no .version and .target directives")
	}
	var kernels []Kernel
	for _, m := range ptxEntry.FindAllStringSubmatch(src, -1) {
		k := Kernel{Name: m[1]}
		for _, p := range ptxParam.FindAllStringSubmatch(m[2], -1) {
			bits, err := strconv.Atoi(p[2])
			if err != nil {
				return nil, fmt.Errorf("kernel %s: parameter type .%s%s: %w", k.Name, p[1], p[2], err)
			}
			size := bits / 8
			if p[3] != "" {
				n, err := strconv.Atoi(p[3])
				if err != nil || n > maxParam {
					return nil, fmt.Errorf("kernel %s: parameter of %s elements exceeds the limit of %d bytes for all parameters", k.Name, p[3], maxParam)
				}
				size *= n
			}
			k.Params = append(k.Params, size)
		}
		kernels = append(kernels, k)
	}
	return kernels, nil
}
