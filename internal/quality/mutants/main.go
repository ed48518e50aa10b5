// Command mutants proves that tests can fail. Each mutant is a small edit that breaks
// one guarantee, and a test that must fail with it (go test -overlay). A mutant that
// survives is an error.
//
// A line of the list is
//
//	file | old text | new text | go test arguments
//
// The old text must occur in the file exactly once. Lines that begin with # are
// comments.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "run only mutants whose line contains this text")
	flag.Parse()
	survivors, run := 0, 0
	for _, list := range flag.Args() {
		mutants, err := readList(list)
		if err != nil {
			fmt.Fprintln(os.Stderr, "mutants:", err)
			os.Exit(2)
		}
		for _, m := range mutants {
			if !strings.Contains(m.String(), *only) {
				continue
			}
			run++
			start := time.Now()
			verdict := "killed"
			if err := m.runTwice(); err != nil {
				verdict = err.Error()
				survivors++
			}
			fmt.Printf("mutant %-60s %5.1fs  %s\n", m, time.Since(start).Seconds(), verdict)
		}
	}
	fmt.Printf("mutants: %d run, %d not killed\n", run, survivors)
	if survivors > 0 || run == 0 {
		os.Exit(1)
	}
}

// A mutant is one edit and the test that must fail under it.
type mutant struct {
	file, old, new string
	test           []string
}

func (m mutant) String() string { return m.file + ": " + m.old + " -> " + m.new }

func readList(path string) ([]mutant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []mutant
	for i, line := range strings.Split(string(text), "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, " | ")
		if len(f) != 4 {
			return nil, fmt.Errorf("%s:%d: want four fields separated by \" | \", got %d", path, i+1, len(f))
		}
		list = append(list, mutant{strings.TrimSpace(f[0]), f[1], f[2], strings.Fields(f[3])})
	}
	return list, nil
}

// source returns the file, which must contain the old text once.
func (m mutant) source() ([]byte, error) {
	src, err := os.ReadFile(m.file)
	if n := bytes.Count(src, []byte(m.old)); err == nil && n != 1 {
		err = fmt.Errorf("the old text occurs %d times in the file, want once", n)
	}
	return src, err
}

var errSurvived = errors.New("SURVIVED: the test passes")

// runTwice gives a test of concurrent code a second chance to meet its moment.
func (m mutant) runTwice() error {
	err := m.run()
	if errors.Is(err, errSurvived) {
		err = m.run()
	}
	return err
}

// run returns nil if the test fails, as it must.
func (m mutant) run() error {
	src, err := m.source()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(dir, src)
	if err != nil {
		return err
	}
	test := exec.Command("go", append([]string{"test", "-count=1"}, m.test...)...)
	// A variable, so that programs which the test builds have the edit, too.
	test.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	out, err := test.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		return err
	}
	switch {
	case err == nil:
		return errSurvived
	case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
		return fmt.Errorf("DOES NOT BUILD: %s", firstLines(out, 3))
	case !bytes.Contains(out, []byte("FAIL")):
		return fmt.Errorf("NO TEST RAN: %s", firstLines(out, 3))
	}
	return nil
}

func (m mutant) overlay(dir string, src []byte) (string, error) {
	abs, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(mutated, bytes.Replace(src, []byte(m.old), []byte(m.new), 1), 0o644); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{abs: mutated}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, text, 0o644)
}

func firstLines(text []byte, n int) string {
	lines := strings.SplitN(string(text), "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "; ")
}
