package gpu

import (
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
)

const ptxHead = ".version 8.0\n.target sm_80\n.address_size 64\n"

// Everything that compilers write and that looks unlike a plain instruction.
const ptxOddities = `//
.version 9.0 // of CUDA 13.0
/* a comment; with { */
.target sm_90a, texmode_independent, debug
.address_size 64
.file 1 "a;b{.cu"
.extern .func (.param .b32 r) f (.param .b64 p) ;
.global .align 4 .b8 table[4] = {1, 2, {3, 4}};
.global .u64 word = 5;
.visible .entry k(
	.param .align 8 .b8 k_param_0[24]
)
.maxntid 128, 1, 1
{
	.local .align 8 .b8 	__local_depot0[16];
	.reg .pred %p<3>;
	.pragma "nounroll; {";
	.loc 1 10 5
	ld.param.v2.u32 	{%r1, %r2}, [k_param_0];
$L__BB0_1:
	@%p1 bra 	$L__BB0_1;
	@!%p2 ld.shared::cta.b32 %r3, [%rd1];
	{ // callseq 0, 0
	.reg .b32 temp_param_reg;
	.param .b64 param0;
	call.uni (retval0), f, (param0);
	}
	ts: .branchtargets $L__BB0_1, done;
	brx.idx %r1, ts;
	_tcgen: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1,%f2}, {%r1}, {%r2}, {%f3};
	;
done:	ret;
}
.section .debug_str
{
info_string0:
.b8 99,117
.b32 .debug_info
}
`

func TestPTXIsTakenOrRefusedAsByCUDA(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       gpu.Code
	}{
		{"our kernels", string(kernels.PTX), gpu.Success},
		{"oddities", ptxOddities, gpu.Success},
		{"nothing", "", gpu.ErrInvalidImage},
		{"blanks", " \n// .version 8.0", gpu.ErrInvalidImage},
		{"other text", "hello", gpu.ErrInvalidImage},
		{"machine code", "\x7fELF\x02\x01\x01", gpu.ErrInvalidImage},
		{"target first", ".target sm_80\n.version 8.0\n", gpu.ErrInvalidImage},
		{"no number", ".version x\n.target sm_80\n", gpu.ErrInvalidPTX},
		{"half a number", ".version 8\n.target sm_80\n", gpu.ErrInvalidPTX},
		{"newest", ".version 9.3\n.target sm_90\n", gpu.Success},
		{"newer", ".version 9.4\n.target sm_90\n", gpu.ErrUnsupportedPTXVersion},
		{"much newer", ".version 10.0\n.target sm_90\n", gpu.ErrUnsupportedPTXVersion},
		{"no target", ".version 8.0\n", gpu.ErrInvalidPTX},
		{"target of nobody", ".version 8.0\n.target gfx90a\n", gpu.ErrInvalidPTX},
		{"later card", ".version 8.0\n.target sm_100\n", gpu.ErrInvalidPTX},
		{"no such instruction", ptxHead + ".entry k() { frobnicate.u32 %r1, %r2; ret; }", gpu.ErrInvalidPTX},
		{"none in a block", ptxHead + ".entry k() { { frobnicate; } ret; }", gpu.ErrInvalidPTX},
		{"none behind a predicate", ptxHead + ".entry k() { @!%p1 frobnicate; ret; }", gpu.ErrInvalidPTX},
		{"none behind a label", ptxHead + ".entry k() { here: frobnicate; ret; }", gpu.ErrInvalidPTX},
		{"none behind a section", ptxHead + ".section .debug_str { .b8 1 }\n.entry k() { frobnicate; }", gpu.ErrInvalidPTX},
		{"none behind a value", ptxHead + ".global .b8 x[2] = {1, 2};\n.entry k() { frobnicate; }", gpu.ErrInvalidPTX},
		{"no semicolon", ptxHead + ".entry k() { ret }", gpu.ErrInvalidPTX},
		{"cut in a body", ptxHead + ".entry k() { ret;", gpu.ErrInvalidPTX},
		{"cut in an instruction", ptxHead + ".entry k() { mov.u32 %r1, ", gpu.ErrInvalidPTX},
		{"cut in a text", ptxHead + ".entry k() { .pragma \"nounroll", gpu.ErrInvalidPTX},
		{"cut in a comment", ptxHead + ".entry k() { /* ret; }", gpu.ErrInvalidPTX},
		{"cut in a value", ptxHead + ".global .b8 x[2] = {1, ", gpu.ErrInvalidPTX},
		{"a comment in a text", ptxHead + ".entry k() { .pragma \"// /*\"; frobnicate; }", gpu.ErrInvalidPTX},
		{"a brace too many", ptxHead + ".entry k() { ret; } }", gpu.ErrInvalidPTX},
	} {
		if err := checkPTX(c.text, [2]int{9, 0}); gpu.CodeOf(err) != c.want {
			t.Errorf("%s: %s (%v), want %s", c.name, gpu.CodeOf(err).Name(), err, c.want.Name())
		}
	}
	if err := checkPTX(".version 8.0\n.target sm_90\n", [2]int{8, 6}); gpu.CodeOf(err) != gpu.ErrInvalidPTX || !strings.Contains(err.Error(), "sm_86") {
		t.Errorf("text for a later card: %v", err)
	}
}

// A text that is cut anywhere in a body is never taken.
func TestCutPTXIsRefused(t *testing.T) {
	text := ptxHead + ".visible .entry k(.param .u64 p) {\n\t.reg .b32 %r<3>;\n\t@%p1 st.v2.u32 [%rd1], {%r1, %r2};\n\tret;\n}\n"
	from, to := strings.Index(text, "{")+1, strings.LastIndex(text, "}")
	for n := from; n <= to; n++ {
		if err := checkPTX(text[:n], [2]int{9, 0}); gpu.CodeOf(err) != gpu.ErrInvalidPTX {
			t.Errorf("%q: %v", text[:n], err)
		}
	}
}

func FuzzCheckPTX(f *testing.F) {
	f.Add(ptxOddities)
	f.Add(ptxHead + ".entry k() {{{ @ ! x : .loc")
	f.Fuzz(func(t *testing.T, text string) {
		if err := checkPTX(text, [2]int{9, 0}); err != nil && err.Error() == "" {
			t.Errorf("%s without a reason", gpu.CodeOf(err).Name())
		}
	})
}
