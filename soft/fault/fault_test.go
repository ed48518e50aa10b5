package fault

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Specifications are parsed, and wrong ones explained.
func TestParse(t *testing.T) {
	list, err := Parse("errno=EIO,call=read,file=*.bin,nth=3; slow=20ms,every=2\n# a comment\nunplug\n\ndma=drop,p=0.5,seed=7,times=2")
	if err != nil || len(list) != 4 {
		t.Fatalf("%d specifications: %v", len(list), err)
	}
	if s := list[0]; s.Kind != Errno || s.errno != unix.EIO || s.Call != "read" || s.File != "*.bin" || s.Nth != 3 {
		t.Errorf("first: %+v", s)
	}
	if s := list[2]; s.Kind != Unplug || s.Nth != 1 {
		t.Errorf("a drive is unplugged once: %+v", s)
	}
	// A name may contain the sign that begins comments.
	for _, text := range []string{"errno=EIO,file=a#1.bin", "errno=EIO,file=a#1.bin # a comment", "errno=EIO,file=a#1.bin\t# a comment", "#\nerrno=EIO,file=a#1.bin"} {
		if list, err := Parse(text); err != nil || len(list) != 1 || list[0].File != "a#1.bin" {
			t.Errorf("%q: %+v, %v", text, list, err)
		}
	}
	for text, want := range map[string]string{
		"explode":       "unknown kind",
		"errno=EWHAT":   "such as EIO",
		"errno=0":       "such as EIO",
		"code=12":       "5001 to 5999",
		"slow=fast":     "duration such as",
		"slow=5":        "duration such as",
		"errno=":        "such as EIO",
		"errno":         "such as EIO",
		"slow=-1s":      "duration such as",
		"short=x":       "",
		"dma=any":       "one of drop",
		"sticky=1":      "700 to 720",
		"unplug=now":    "no value",
		"unplug,nth=0":  "number from 1",
		"unplug,p=2":    "probability",
		"unplug,call=x": "one of read",
		"unplug,file=[": "pattern",
		"unplug,seed=x": "seed=x: must be a number",
		"unplug,":       `fault "unplug,": empty condition`,
		"dma=wrong":     "one of drop",

		"errno=EIO,nth=2,every=3":  "one of nth, every and p",
		"errno=EIO,p=0.1,every=3":  "one of nth, every and p",
		"errno=EIO,nth=2,nth=3":    "given twice",
		"short=4K,call=register":   "moves nothing",
		"truncate=4K,call=buffer":  "no file",
		"errno=EIO\n\nslow=x":      `line 3: fault "slow=x"`,
		"errno=EIO; nth=3":         "comes first",
		"errno=EIO,call=read;slow": `fault "slow"`,

		"unplug,when=no": "unknown condition",
		"@/nonexistent":  "no such file",
		"@/dev/zero":     "/dev/zero: longer than 1 MiB",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A mistake in a file is named by file and line.
func TestParseFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "faults.txt")
	if err := os.WriteFile(name, []byte("# one\r\nerrno=EIO,nth=2 # the second\r\n;;\n  explode\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Parse("@" + name)
	if want := name + `:4: fault "explode": unknown kind`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// Conditions choose calls; the same seed chooses the same ones.
func TestConditions(t *testing.T) {
	which := func(text string) (hit []int) {
		t.Helper()
		specs, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		i := New(nil, specs)
		for n := 1; n <= 10; n++ {
			if _, err := i.Before("read", "/data/a.bin", 8); err != nil {
				hit = append(hit, n)
			}
		}
		return hit
	}
	for text, want := range map[string][]int{
		"errno=EIO,nth=3":              {3},
		"errno=EIO,every=4":            {4, 8},
		"errno=EIO,times=2":            {1, 2},
		"errno=EIO,every=3,times=1":    {3},
		"errno=EIO,call=write":         nil,
		"errno=EIO,file=*.txt":         nil,
		"errno=EIO,file=a.*,nth=1":     {1},
		"errno=EIO,file=/data/*,nth=2": {2},
		"errno=EIO,call=buffer":        nil,
	} {
		if got := which(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: calls %v, want %v", text, got, want)
		}
	}
	some := which("errno=EIO,p=0.5,seed=3")
	if len(some) == 0 || len(some) == 10 || !reflect.DeepEqual(some, which("errno=EIO,p=0.5,seed=3")) {
		t.Errorf("p=0.5: calls %v, then %v", some, which("errno=EIO,p=0.5,seed=3"))
	}
	if reflect.DeepEqual(some, which("errno=EIO,p=0.5,seed=4")) {
		t.Error("another seed chose the same calls")
	}
}

// A limit is the smallest of all; nil injects nothing.
func TestLimit(t *testing.T) {
	specs, err := Parse("short=100; short=50; errno=5,nth=2")
	if err != nil {
		t.Fatal(err)
	}
	i := New(nil, specs)
	if n, err := i.Before("write", "a", 1000); n != 50 || err != nil {
		t.Errorf("limit %d: %v", n, err)
	}
	if n, err := (*Injector)(nil).Before("read", "a", 7); n != 7 || err != nil || (*Injector)(nil).Fired() != nil {
		t.Errorf("nil: limit %d: %v", n, err)
	}
}

// A fault that made no difference has not come about: a call fails once, is as short as the
// smallest limit says, and not short if it asks for no more.
func TestWithoutEffect(t *testing.T) {
	specs, err := Parse("short=100; short=50; errno=EIO,nth=3; code=5030,nth=3")
	if err != nil {
		t.Fatal(err)
	}
	i := New(nil, specs)
	for _, n := range []uint64{1000, 50, 1000} {
		_, err = i.Before("read", "a", n)
	}
	if !errors.Is(err, unix.EIO) {
		t.Errorf("the third call: %v", err)
	}
	if got := strings.Join(i.Fired(), "; "); got != "short=50: 1 time; errno=EIO,nth=3: 1 time" {
		t.Errorf("came about: %s", got)
	}
}

// The journal has the counts of all faults at any time.
func TestJournal(t *testing.T) {
	dir := t.TempDir()
	specs, err := Parse("short=1; errno=EIO,nth=5")
	if err != nil {
		t.Fatal(err)
	}
	i := New(nil, specs)
	if err := i.Journal(dir); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := i.Before("read", "a", 2); err != nil {
			t.Fatal(err)
		}
	}
	paths, _ := filepath.Glob(filepath.Join(dir, "*.faults"))
	if len(paths) != 1 {
		t.Fatalf("files %v", paths)
	}
	// A program that closes what it did not open would give the number to a file of its own.
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		if to, _ := os.Readlink(link); to == paths[0] {
			t.Errorf("%s is open", to)
		}
	}
	text, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(text)); !reflect.DeepEqual(got, []string{"short=1", "3", "errno=EIO,nth=5", "0"}) {
		t.Errorf("journal %q", text)
	}
	if got := i.Fired(); !reflect.DeepEqual(got, []string{"short=1: 3 times"}) {
		t.Errorf("came about: %v", got)
	}
}
