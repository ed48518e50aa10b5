package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A table is the libraries with their functions parsed and numbered.
type table struct {
	libs    []*Library
	entries []*entry
	version string // of the table: shim and Go core must have the same
}

// An entry is a function of the table.
type entry struct {
	*Func
	lib    *Library
	index  int
	name   string // in C
	method string // in Go
	ret    string
	params []param
}

// A param is a C parameter.
type param struct {
	ctype    string
	name     string
	nullable bool
	address  bool
	device   bool
}

// marks are what may follow a parameter's name in Func.Decl.
const marks = "?@#"

func (p param) pointer() bool { return strings.Contains(p.ctype, "*") }

// number parses every declaration and gives each entry its number.
func number(libs []*Library) (*table, error) {
	t := &table{libs: libs}
	sum := sha256.New()
	for _, l := range libs {
		for i := range l.Funcs {
			e, err := parse(l, &l.Funcs[i])
			if err != nil {
				return nil, err
			}
			e.index = len(t.entries)
			t.entries = append(t.entries, e)
			fmt.Fprintf(sum, "%s %d %s\n", l.Name, e.index, e.Decl)
		}
		if err := unique(l); err != nil {
			return nil, err
		}
	}
	t.version = "culvert-table-2-" + hex.EncodeToString(sum.Sum(nil)[:8])
	return t, nil
}

// unique checks that no version of the library has a name twice.
func unique(l *Library) error {
	for _, v := range []int{12, 13} {
		seen := map[string]bool{}
		for _, name := range symbols(l, v) {
			if seen[name] {
				return fmt.Errorf("%s: duplicate name %s", l.Name, name)
			}
			seen[name] = true
		}
	}
	return nil
}

var version = regexp.MustCompile(`_v[0-9]+$`)

func parse(l *Library, f *Func) (*entry, error) {
	head, tail, ok := strings.Cut(strings.TrimSuffix(f.Decl, ")"), "(")
	ret, name, ok2 := cutLast(head)
	if !ok || !ok2 {
		return nil, fmt.Errorf("%s: cannot read the declaration %q", l.Name, f.Decl)
	}
	if _, ok := l.Results[ret]; !ok {
		return nil, fmt.Errorf("%s: no rule for the result %s", name, ret)
	}
	e := &entry{Func: f, lib: l, name: name, ret: ret, method: f.Go}
	if e.method == "" {
		e.method = version.ReplaceAllString(strings.TrimPrefix(name, l.Prefix), "")
	}
	if tail == "void" {
		return e, nil
	}
	for _, s := range strings.Split(tail, ",") {
		p, err := parseParam(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		e.params = append(e.params, p)
	}
	return e, nil
}

func parseParam(s string) (param, error) {
	s = strings.TrimSpace(s)
	at := strings.LastIndexAny(s, " *")
	if at < 0 {
		return param{}, fmt.Errorf("cannot read the parameter %q", s)
	}
	name := strings.TrimRight(s[at+1:], marks)
	has := func(mark string) bool { return strings.Contains(s[at+1+len(name):], mark) }
	p := param{strings.TrimSpace(s[:at+1]), name, has("?"), has("@"), has("#")}
	if _, ok := goTypes[p.ctype]; !ok && !p.pointer() {
		return param{}, fmt.Errorf("parameter %s: unknown type %s", p.name, p.ctype)
	}
	return p, nil
}

// need is what the function needs, and the parameter that names it; -1 if none
// does.
func (e *entry) need() (need, int) {
	switch {
	case !e.lib.Calls:
		return nothing, -1
	case e.Needs != "":
		return e.Needs, -1
	}
	for _, n := range []need{"Stream", "Event", "Device"} {
		if i := slices.IndexFunc(e.params, func(p param) bool { return p.names() == n }); i >= 0 {
			return n, i
		}
	}
	return context, -1
}

// names is the need that a parameter names, if any.
func (p param) names() need {
	if p.device {
		return "Device"
	}
	return needs[p.ctype]
}

// symbols are the names that a library of the given major version exports.
func symbols(l *Library, major int) []string {
	var names []string
	for i := range l.Funcs {
		f := &l.Funcs[i]
		if f.Only != 0 && f.Only != major || f.Hidden {
			continue
		}
		head, _, _ := strings.Cut(f.Decl, "(")
		_, name, _ := cutLast(head)
		names = append(names, name)
		names = append(names, f.Aliases...)
		if f.PerThread != "" {
			names = append(names, name+"_"+f.PerThread)
		}
	}
	return slices.Concat(names, l.Local, l.Missing, l.Markers)
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, ' ')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
