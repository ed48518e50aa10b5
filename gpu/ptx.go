package gpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// An Entry is a kernel as PTX text declares it.
type Entry struct {
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

// ParsePTX lists the kernels of a PTX text. Both drivers need it: CUDA takes
// arguments as bare pointers, so their number and sizes can only be checked
// against the text.
func ParsePTX(text []byte) ([]Entry, error) {
	src := ptxComment.ReplaceAllString(strings.TrimRight(string(text), "\x00"), " ")
	if !strings.Contains(src, ".version") || !strings.Contains(src, ".target") {
		return nil, fmt.Errorf("not PTX: no .version and .target directives")
	}
	var entries []Entry
	for _, m := range ptxEntry.FindAllStringSubmatch(src, -1) {
		e := Entry{Name: m[1]}
		for _, p := range ptxParam.FindAllStringSubmatch(m[2], -1) {
			bits, err := strconv.Atoi(p[2])
			if err != nil {
				return nil, fmt.Errorf("kernel %s: parameter type .%s%s: %w", e.Name, p[1], p[2], err)
			}
			size := bits / 8
			if p[3] != "" {
				n, err := strconv.Atoi(p[3])
				if err != nil || n > maxParam {
					return nil, fmt.Errorf("kernel %s: a parameter of %s elements: all parameters together have at most %d bytes", e.Name, p[3], maxParam)
				}
				size *= n
			}
			e.Params = append(e.Params, size)
		}
		entries = append(entries, e)
	}
	return entries, nil
}
