package main

import (
	"slices"
	"strings"
	"testing"
)

// TestFresh fails if a generated file is out of date.
func TestFresh(t *testing.T) {
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	if err := update("..", files, true); err != nil {
		t.Error(err)
	}
}

func TestStale(t *testing.T) {
	if err := update("..", map[string][]byte{"shim/entries.h": []byte("other")}, true); err == nil {
		t.Error("a stale file was not detected")
	}
}

func TestParse(t *testing.T) {
	f := &Func{Decl: "CUresult cuMemGetAddressRange_v2(CUdeviceptr *base?, size_t *size, CUdeviceptr dptr)"}
	e, err := parse(&cuda, f)
	if err != nil {
		t.Fatal(err)
	}
	if e.name != "cuMemGetAddressRange_v2" || e.method != "MemGetAddressRange" || e.ret != "CUresult" || len(e.params) != 3 {
		t.Fatalf("parsed %+v", e)
	}
	if p := e.params[0]; !p.nullable || !p.pointer() || p.name != "base" {
		t.Errorf("first parameter %+v", p)
	}
	if p := e.params[1]; p.nullable || p.conv() != "cmem.Ptr(%s)" {
		t.Errorf("second parameter %+v", p)
	}
	if p := e.params[2]; p.pointer() || p.conv() != "gpu.Addr(%s)" {
		t.Errorf("third parameter %+v", p)
	}
}

func TestParseErrors(t *testing.T) {
	for decl, want := range map[string]string{
		"nonsense":                       "cannot read",
		"float cuFloat(void)":            "no rule",
		"CUresult cuBy(CUunknown value)": "unknown type",
		"CUresult cuBy(x)":               "cannot read",
	} {
		if _, err := parse(&cuda, &Func{Decl: decl}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", decl, err, want)
		}
	}
}

// TestNames checks that no function is both supported and missing, and that
// structs are passed as their members.
func TestNames(t *testing.T) {
	for _, l := range libraries {
		if err := unique(l); err != nil {
			t.Error(err)
		}
	}
	twice := &Library{Name: "x", Funcs: []Func{{Decl: "int a(void)"}}, Missing: []string{"a"}}
	if unique(twice) == nil {
		t.Error("a duplicate name was not detected")
	}
	p := param{ctype: "CUmemLocation", name: "at"}
	if got := p.words(); !slices.Equal(got, []string{"at.type", "at.id"}) {
		t.Errorf("a struct is passed as %v", got)
	}
}

// TestTableVersion: any change of the table changes the version.
func TestTableVersion(t *testing.T) {
	version := func(decl string) string {
		l := &Library{Name: "x", Results: map[string]Result{"int": {}}, Funcs: []Func{{Decl: decl}}}
		tab, err := number([]*Library{l})
		if err != nil {
			t.Fatal(err)
		}
		return tab.version
	}
	if version("int a(int x)") == version("int a(size_t x)") {
		t.Error("another parameter did not change the version")
	}
}
