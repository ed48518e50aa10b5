package gpu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/gpu"
)

// The newest PTX that the compiler in CUDA 13.0 takes.
const ptxMajor, ptxMinor = 9, 0

// checkPTX is the compiler's part that is left in a GPU that compiles nothing:
// whether this is PTX, for this driver and this card, with bodies that end and
// instructions that exist. What operands they have it does not know.
func checkPTX(text string, capability [2]int) (gpu.Code, string) {
	l := &ptxLexer{rest: text}
	if l.next() != ".version" {
		return gpu.ErrInvalidImage, "not PTX: it does not begin with .version"
	}
	version := l.next()
	major, minor, ok := ptxVersion(version)
	if !ok {
		return gpu.ErrInvalidPTX, fmt.Sprintf("version %q", version)
	}
	if major > ptxMajor || major == ptxMajor && minor > ptxMinor {
		return gpu.ErrUnsupportedPTXVersion, fmt.Sprintf("version %s; this driver knows up to %d.%d", version, ptxMajor, ptxMinor)
	}
	if l.next() != ".target" {
		return gpu.ErrInvalidPTX, "no .target after .version"
	}
	target := l.next()
	sm, ok := strings.CutPrefix(strings.TrimRight(target, "af"), "sm_")
	n, err := strconv.Atoi(sm)
	if have := 10*capability[0] + capability[1]; !ok || err != nil || n > have {
		return gpu.ErrInvalidPTX, fmt.Sprintf("target %s; this GPU is sm_%d", target, have)
	}
	if why := l.module(); why != "" {
		return gpu.ErrInvalidPTX, why
	}
	return gpu.Success, ""
}

func ptxVersion(s string) (major, minor int, ok bool) {
	a, b, ok := strings.Cut(s, ".")
	major, err := strconv.Atoi(a)
	minor, err2 := strconv.Atoi(b)
	return major, minor, ok && err == nil && err2 == nil
}

// module reads what follows the header, and says what is wrong with it.
func (l *ptxLexer) module() string {
	initial := false // the next brace opens an initial value
	for {
		switch t := l.next(); t {
		case "":
			return ""
		case "=":
			initial = true
		case ";":
			initial = false
		case "{":
			why := ""
			if initial {
				why = l.skip(1)
			} else {
				why = l.body()
			}
			if why != "" {
				return why
			}
		case "}":
			return "a brace that nothing opened"
		}
	}
}

// body reads a function's body after its opening brace, or the lines of a
// section, which only have directives.
func (l *ptxLexer) body() string {
	for depth := 1; depth > 0; {
		t := l.next()
		why := ""
		switch {
		case t == "":
			return "a function without end"
		case t == "{":
			depth++
		case t == "}":
			depth--
		case t == ";":
		case t == ".loc" || t == ".file":
			l.line()
		case t[0] == '.':
			why = l.skip(0)
		case t == "@":
			if l.next() == "!" {
				l.next()
			}
			why = l.instruction(l.next())
		case l.peek() == ":":
			l.next() // t was a label
		default:
			why = l.instruction(t)
		}
		if why != "" {
			return why
		}
	}
	return ""
}

func (l *ptxLexer) instruction(t string) string {
	op, _, _ := strings.Cut(t, ".")
	if !ptxOpcodes[op] {
		return fmt.Sprintf("unknown instruction %q", t)
	}
	if why := l.skip(0); why != "" {
		return why
	}
	if l.last == "}" {
		return fmt.Sprintf("instruction %s without a semicolon", t)
	}
	return ""
}

// skip passes over a statement: up to its semicolon, or up to the brace that
// closes what is around it, which it leaves. With depth 1 it passes over an
// initial value instead.
func (l *ptxLexer) skip(depth int) string {
	value := depth > 0
	for {
		before := l.rest
		switch l.next() {
		case "":
			return "a statement without end"
		case "{":
			depth++
		case "}":
			if depth == 0 {
				l.rest = before
				return ""
			}
			if depth--; value && depth == 0 {
				return ""
			}
		case ";":
			if depth == 0 {
				return ""
			}
		}
	}
}

// A ptxLexer cuts PTX into words, texts and single characters.
type ptxLexer struct {
	rest string
	last string // what next returned
}

// next is "" at the end.
func (l *ptxLexer) next() string {
	l.space()
	n := 0
	switch {
	case l.rest == "":
	case l.rest[0] == '"':
		n = len(l.rest)
		if end := strings.IndexByte(l.rest[1:], '"'); end >= 0 {
			n = end + 2
		}
	default:
		n = max(wordLen(l.rest), 1)
	}
	l.last, l.rest = l.rest[:n], l.rest[n:]
	return l.last
}

func (l *ptxLexer) peek() string {
	saved := *l
	t := l.next()
	*l = saved
	return t
}

// wordLen is the length of the word that s begins with. Words contain dots, and
// colons in pairs: ld.shared::cta.u32.
func wordLen(s string) (n int) {
	for n < len(s) {
		switch c := s[n]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("._$%", c) >= 0:
			n++
		case n > 0 && strings.HasPrefix(s[n:], "::"):
			n += 2
		default:
			return n
		}
	}
	return n
}

// space passes over blanks and comments.
func (l *ptxLexer) space() {
	for {
		l.rest = strings.TrimLeft(l.rest, " \t\r\n\v\f")
		switch {
		case strings.HasPrefix(l.rest, "//"):
			l.line()
		case strings.HasPrefix(l.rest, "/*"):
			_, l.rest, _ = strings.Cut(l.rest, "*/")
		default:
			return
		}
	}
}

// line passes over the rest of the line.
func (l *ptxLexer) line() { _, l.rest, _ = strings.Cut(l.rest, "\n") }

// ptxOpcodes are the instructions of PTX 9.0, without what follows their first
// dot.
var ptxOpcodes = func() map[string]bool {
	m := map[string]bool{}
	for _, op := range strings.Fields(`
		abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk bra brev brkpt brx call
		clusterlaunchcontrol clz cnot copysign cos cp createpolicy cvt cvta discard div dp2a dp4a elect ex2 exit fence
		fma fns getctarank griddepcontrol isspacep istypep ld ldmatrix ldu lg2 lop3 mad mad24 madc mapa match max
		mbarrier membar min mma mov movmatrix mul mul24 multimem nanosleep neg not or pmevent popc prefetch prefetchu
		prmt rcp red redux rem ret rsqrt sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st stackrestore
		stacksave stmatrix sub subc suld suq sured sust szext tanh tcgen05 tensormap testp tex tld4 trap txq
		vabsdiff vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 vote
		vset vset2 vset4 vshl vshr vsub vsub2 vsub4 wgmma wmma xor`) {
		m[op] = true
	}
	return m
}()
