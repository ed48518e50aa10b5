package ptx_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/ptx"
)

const head = ".version 8.0\n.target sm_70\n.address_size 64\n"

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name string
		text string
		want []ptx.Kernel
	}{
		{"no kernels", head, nil},
		{"no parameters", head + ".visible .entry k() { ret; }", []ptx.Kernel{{Name: "k"}}},
		{"no list", head + ".entry k\n{ ret; }", []ptx.Kernel{{Name: "k"}}},
		{
			"sizes", head + ".visible .entry _k$1(\n\t.param .u64 a,\n\t.param .f32 b,\n\t.param .b8 c,\n\t.param .s16 d\n)\n{ ret; }",
			[]ptx.Kernel{{Name: "_k$1", Params: []int{8, 4, 1, 2}}},
		},
		{"struct by value", head + ".entry k(.param .align 8 .b8 k_param_0[24], .param .u32 n) { }", []ptx.Kernel{{Name: "k", Params: []int{24, 4}}}},
		{"pointer attributes", head + ".entry k(.param .u64 .ptr .global .align 16 p) { }", []ptx.Kernel{{Name: "k", Params: []int{8}}}},
		{
			"comments", head + "// .entry no()\n/* .entry neither(.param .u64 x)\n */ .entry k(/* .param .u8 x, */ .param .u64 a // .param .u8 y\n) { }",
			[]ptx.Kernel{{Name: "k", Params: []int{8}}},
		},
		{
			"two, and functions are not kernels", head + ".func f(.param .u64 a) { ret; }\n.entry a(.param .u64 x) { }\n.weak .entry b() { }",
			[]ptx.Kernel{{Name: "a", Params: []int{8}}, {Name: "b"}},
		},
		{"NUL at the end", head + ".entry k() { }\x00", []ptx.Kernel{{Name: "k"}}},
	} {
		got, err := ptx.Parse([]byte(tt.text))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, text := range []string{
		"", "\x7fELF", "// " + strings.ReplaceAll(head, "\n", " "),
		head + ".entry k(.param .b99999999999999999999 x) { }",
		head + ".entry k(.param .b8 x[99999999999999999999]) { }",
	} {
		if got, err := ptx.Parse([]byte(text)); err == nil {
			t.Errorf("%q gives %v", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + ".visible .entry k(.param .align 8 .b8 a[24], .param .u64 .ptr b) { ret; }"))
	f.Add([]byte(head + "/* .entry"))
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := ptx.Parse(text)
		if err != nil {
			return
		}
		for _, e := range entries {
			if e.Name == "" || strings.ContainsAny(e.Name, " \t\n(") {
				t.Errorf("name %q", e.Name)
			}
			for _, p := range e.Params {
				if p < 0 {
					t.Errorf("kernel %s has a parameter of %d bytes", e.Name, p)
				}
			}
		}
	})
}

type kernel []int

func (kernel) Name() string    { return "k" }
func (k kernel) Params() []int { return k }

func TestEncodeArgs(t *testing.T) {
	k := kernel{8, 8, 8, 4, 4, 8, 4}
	got, err := ptx.EncodeArgs(nil, k, []any{
		gpu.Addr(1 << 40), uint64(7), int64(-1), uint32(1 << 31), int32(-1), math.Pi, float32(555),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []uint64{1 << 40, 7, math.MaxUint64, 1 << 31, math.MaxUint32, math.Float64bits(math.Pi), 0x440ac000}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	again, err := ptx.EncodeArgs(got, kernel{4}, []any{uint32(3)})
	if err != nil || len(again) != 1 || &again[0] != &got[0] {
		t.Errorf("the words' memory is not reused: %v, %v", again, err)
	}
	for name, args := range map[string][]any{
		"none": nil, "too many": {uint64(1), uint64(2)}, "int": {1}, "string": {"x"}, "nil": {nil}, "too short": {uint32(1)}, "bool": {true},
	} {
		if words, err := ptx.EncodeArgs(nil, kernel{8}, args); err == nil {
			t.Errorf("%s gives %v", name, words)
		}
	}
}
