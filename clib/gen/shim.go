package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
)

// entriesHeader numbers the entries for C and defines the version of the table.
func entriesHeader(t *table) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "/* %s */\n#ifndef CULVERT_ENTRIES_H\n#define CULVERT_ENTRIES_H\n\n", notice)
	fmt.Fprintf(&b, "/* Shim and core work together only when they were made from one table. */\n#define CULVERT_TABLE_VERSION %q\n\nenum culvert_entry {\n", t.version)
	for _, e := range t.entries {
		fmt.Fprintf(&b, "\t%s = %d,\n", e.constant(), e.index)
	}
	fmt.Fprintf(&b, "};\n\n#endif\n")
	return b.Bytes()
}

// coreHeader has the version of the table for the Go core, in its own directory: the go
// command does not see changes of headers elsewhere, and would keep an old core.
func coreHeader(t *table) []byte {
	return fmt.Appendf(nil, "/* %s */\n\n/* CULVERT_TABLE_VERSION of shim/entries.h. */\n#define CULVERT_CORE_VERSION %q\n", notice, t.version)
}

func (e *entry) constant() string {
	if e.Only != 0 {
		return fmt.Sprintf("FN_%s_%d", e.name, e.Only)
	}
	return "FN_" + e.name
}

// shim is the C side of a library.
func shim(t *table, l *Library) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "/* %s */\n#include \"%s_local.h\"\n\n", notice, l.Name)
	for _, m := range l.Markers {
		fmt.Fprintf(&b, "CULVERT_EXPORT const int %s = 1;\n", m)
	}
	for _, e := range t.entries {
		if e.lib == l {
			shimFunc(&b, e)
		}
	}
	for _, name := range l.Missing {
		fmt.Fprintf(&b, "CULVERT_MISSING(%s, %s)\n", name, l.MissingCode)
	}
	if l == &cuda {
		procTable(&b, t, l)
	}
	return b.Bytes()
}

func shimFunc(b *bytes.Buffer, e *entry) {
	if e.Only != 0 {
		fmt.Fprintf(b, "\n#if CULVERT_CUDART == %d", e.Only)
	}
	decl := strings.NewReplacer("?", "", "@", "", "#", "").Replace(e.Decl)
	if !e.Hidden && !e.lib.Private {
		decl = "CULVERT_EXPORT " + decl
	}
	fmt.Fprintf(b, "\n%s\n{\n", decl)
	var words []string
	for _, p := range e.params {
		for _, w := range p.words() {
			words = append(words, "(uint64_t)"+w)
		}
	}
	args := "NULL"
	if len(words) > 0 {
		fmt.Fprintf(b, "\tconst uint64_t a[] = {%s};\n", strings.Join(words, ", "))
		args = "a"
	}
	shimCall(b, e, args)
	b.WriteString("}\n")
	for _, alias := range e.aliases() {
		fmt.Fprintf(b, "CULVERT_ALIAS(%s, %s)\n", alias, e.name)
	}
	if e.Only != 0 {
		b.WriteString("#endif\n")
	}
}

// shimCall writes the call: the Go core's answer, or the failure to load it.
func shimCall(b *bytes.Buffer, e *entry, args string) {
	res := e.lib.Results[e.ret]
	if e.ret == "void" {
		fmt.Fprintf(b, "\tint64_t v;\n\tculvert_call(%s, %s, &v, 0);\n", e.constant(), args)
		return
	}
	errno := cmp.Or(res.Errno, "0")
	fmt.Fprintf(b, "\tint64_t v;\n\tif (!culvert_call(%s, %s, &v, %s))\n\t\treturn %s;\n", e.constant(), args, errno, res.Fail)
	fmt.Fprintf(b, "\treturn %s;\n", fmt.Sprintf(res.C, "v"))
}

func (e *entry) aliases() []string {
	names := e.Aliases
	if e.PerThread != "" {
		names = append(names[:len(names):len(names)], e.name+"_"+e.PerThread)
	}
	return names
}

// procTable lists what cuGetProcAddress returns, newest variant first: the first
// that is old enough is the result. Functions that are not supported come last, so
// that a supported variant precedes them.
func procTable(b *bytes.Buffer, t *table, l *Library) {
	fmt.Fprintf(b, "\nconst struct culvert_proc culvert_procs[] = {\n")
	for i := len(t.entries) - 1; i >= 0; i-- {
		if e := t.entries[i]; e.lib == l {
			fmt.Fprintf(b, "\t{\"%s\", %d, (culvert_fn)%s},\n", version.ReplaceAllString(e.name, ""), e.Since, e.name)
		}
	}
	for _, name := range []string{"cuGetProcAddress_v2", "cuGetProcAddress", "cuGetErrorName", "cuGetErrorString", "cuGetExportTable", "cuProfilerStart", "cuProfilerStop"} {
		since := 0
		if name == "cuGetProcAddress_v2" {
			since = 12000
		}
		fmt.Fprintf(b, "\t{\"%s\", %d, (culvert_fn)%s},\n", version.ReplaceAllString(name, ""), since, name)
	}
	for _, name := range l.Missing {
		fmt.Fprintf(b, "\t{\"%s\", 0, (culvert_fn)%s},\n", version.ReplaceAllString(name, ""), name)
	}
	fmt.Fprintf(b, "\t{NULL, 0, NULL},\n};\n")
}

// versionScript exports the functions and nothing else. libcudart has a symbol
// version, which programs linked against NVIDIA's need; the Makefile inserts its
// name.
func versionScript(l *Library) []byte {
	var b bytes.Buffer
	node := ""
	if l == &cudart {
		node = "@NODE@ "
	}
	fmt.Fprintf(&b, "/* %s */\n%s{\n  global:\n", notice, node)
	seen := map[string]bool{}
	for _, major := range []int{12, 13} {
		for _, name := range symbols(l, major) {
			if !seen[name] {
				fmt.Fprintf(&b, "    %s;\n", name)
			}
			seen[name] = true
		}
	}
	fmt.Fprintf(&b, "  local: *;\n};\n")
	return b.Bytes()
}
