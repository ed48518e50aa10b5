package lab

import (
	"debug/elf"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
)

// libraries lists the shared libraries and the interpreter that a program or a shared
// library needs. A statically linked program needs none.
func libraries(program string) ([]string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	defer f.Close()
	if !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC }) {
		return nil, nil
	}
	out, err := exec.Command("ldd", program).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w: %s", program, err, out)
	}
	list, err := parseLdd(string(out))
	if err != nil {
		return nil, fmt.Errorf("%s %w", program, err)
	}
	return list, nil
}

var (
	lddFound   = regexp.MustCompile(`(?m)^\t(?:\S+ => )?(/.*) \(0x[0-9a-f]+\)$`)
	lddMissing = regexp.MustCompile(`(?m)^\t(\S+) => not found$`)
)

func parseLdd(text string) (list []string, err error) {
	if m := lddMissing.FindStringSubmatch(text); m != nil {
		return nil, fmt.Errorf("needs %s, which is not installed", m[1])
	}
	for _, m := range lddFound.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list, nil
}
