package main

import (
	"debug/elf"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// printGlibc prints the newest version of glibc whose symbols one of the files needs:
// the packages depend on it.
func printGlibc(out io.Writer, files []string) error {
	newest := [2]int{}
	for _, name := range files {
		versions, err := neededVersions(name)
		if err != nil {
			return fmt.Errorf("glibc: %s: %w", name, err)
		}
		for _, text := range versions {
			if v, ok := glibcVersion(text); ok && (v[0] > newest[0] || v[0] == newest[0] && v[1] > newest[1]) {
				newest = v
			}
		}
	}
	if newest == [2]int{} {
		return fmt.Errorf("glibc: no file needs it: %s", strings.Join(files, " "))
	}
	_, err := fmt.Fprintf(out, "%d.%d\n", newest[0], newest[1])
	return err
}

func neededVersions(name string) (versions []string, err error) {
	f, err := elf.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	for _, s := range symbols {
		versions = append(versions, s.Version)
	}
	return versions, err
}

// glibcVersion reads "GLIBC_2.34" and "GLIBC_2.2.5".
func glibcVersion(text string) (v [2]int, ok bool) {
	text, ok = strings.CutPrefix(text, "GLIBC_")
	parts := strings.Split(text, ".")
	if !ok || len(parts) < 2 {
		return v, false
	}
	for i := range v {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}
