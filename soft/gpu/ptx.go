package gpu

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/gpu"
)

// The newest PTX that the compiler in CUDA 13.3 accepts.
const ptxMajor, ptxMinor = 9, 3

// checkPTX checks what a compiler would: whether this is PTX, for this driver and this
// card, with bodies that end and instructions that exist. It does not check operands.
func checkPTX(text string, capability [2]int) error {
	l := newPTXLexer(text)
	if l.next() != ".version" {
		return refuse(gpu.ErrInvalidImage, "not PTX: it does not begin with .version")
	}
	version := l.next()
	major, minor, ok := ptxVersion(version)
	switch {
	case !ok:
		return refuse(gpu.ErrInvalidPTX, "invalid version %q", version)
	case major > ptxMajor || major == ptxMajor && minor > ptxMinor:
		return refuse(gpu.ErrUnsupportedPTXVersion, "version %s; this driver supports up to %d.%d", version, ptxMajor, ptxMinor)
	case l.next() != ".target":
		return refuse(gpu.ErrInvalidPTX, "no .target after .version")
	}
	target := l.next()
	sm, ok := strings.CutPrefix(strings.TrimRight(target, "af"), "sm_")
	n, err := strconv.Atoi(sm)
	if have := 10*capability[0] + capability[1]; !ok || err != nil || n > have {
		return refuse(gpu.ErrInvalidPTX, "target %s; this GPU is sm_%d", target, have)
	}
	if err := l.module(); err != nil {
		return refuse(gpu.ErrInvalidPTX, "%v", err)
	}
	return nil
}

func ptxVersion(s string) (major, minor int, ok bool) {
	a, b, ok := strings.Cut(s, ".")
	major, err := strconv.Atoi(a)
	minor, err2 := strconv.Atoi(b)
	return major, minor, ok && err == nil && err2 == nil
}

// module reads what follows the header.
func (l *ptxLexer) module() error {
	initial := false // the next brace opens an initial value
	for {
		var err error
		switch l.next() {
		case "":
			return nil
		case "=":
			initial = true
		case ";":
			initial = false
		case "{":
			if initial {
				_, err = l.skip(1)
			} else {
				err = l.body()
			}
		case "}":
			err = errors.New("a brace that nothing opened")
		}
		if err != nil {
			return err
		}
	}
}

// body reads a function's body after its opening brace, or the lines of a section, which
// has directives only.
func (l *ptxLexer) body() error {
	for depth := 1; depth > 0; {
		var err error
		switch t := l.next(); {
		case t == "":
			return errors.New("a function without end")
		case t == "{":
			depth++
		case t == "}":
			depth--
		case t == ";" || ptxLine.MatchString(t):
		case t[0] == '.':
			_, err = l.skip(0)
		case t == "@":
			if l.next() == "!" {
				l.next()
			}
			err = l.instruction(l.next())
		case l.peek() == ":":
			l.next() // t was a label
		default:
			err = l.instruction(t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *ptxLexer) instruction(t string) error {
	op, _, _ := strings.Cut(t, ".")
	if !slices.Contains(ptxOpcodes, op) {
		return fmt.Errorf("unknown instruction %q", t)
	}
	end, err := l.skip(0)
	if err == nil && end == "}" {
		err = fmt.Errorf("instruction %s without a semicolon", t)
	}
	return err
}

// skip skips a statement: up to its semicolon, or to the brace that closes what is around
// it, which it leaves. With depth 1 it skips an initial value instead. It returns the
// token at the end.
func (l *ptxLexer) skip(depth int) (end string, err error) {
	value := depth > 0
	for {
		switch l.peek() {
		case "":
			return "", errors.New("a statement without end")
		case "{":
			depth++
		case "}":
			if depth == 0 {
				return "}", nil
			}
			depth--
		}
		if t := l.next(); depth == 0 && (value || t == ";") {
			return t, nil
		}
	}
}

// A ptxLexer returns the tokens of PTX one by one.
type ptxLexer struct{ rest []string }

var (
	// ptxToken is a comment, a .loc or .file directive with its line, a text, a word or a
	// character. Words contain dots, and colons in pairs: ld.shared::cta.u32.
	ptxToken = regexp.MustCompile(`/\*(?s:.*?)(?:\*/|$)|//[^\n]*|\.(?:loc|file)\b[^\n]*|"[^"]*"?|[\w.$%](?:[\w.$%]|::)*|\S`)
	ptxLine  = regexp.MustCompile(`^\.(?:loc|file)\b`)
)

func newPTXLexer(text string) *ptxLexer {
	return &ptxLexer{slices.DeleteFunc(ptxToken.FindAllString(text, -1), func(t string) bool {
		return strings.HasPrefix(t, "/*") || strings.HasPrefix(t, "//")
	})}
}

// peek returns the next token, or "" at the end.
func (l *ptxLexer) peek() string {
	if len(l.rest) == 0 {
		return ""
	}
	return l.rest[0]
}

func (l *ptxLexer) next() string {
	t := l.peek()
	l.rest = l.rest[min(1, len(l.rest)):]
	return t
}

// ptxOpcodes are the instructions of PTX 9.0, without what follows their first
// dot.
var ptxOpcodes = strings.Fields(`
		abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk bra brev brkpt brx call
		clusterlaunchcontrol clz cnot copysign cos cp createpolicy cvt cvta discard div dp2a dp4a elect ex2 exit fence
		fma fns getctarank griddepcontrol isspacep istypep ld ldmatrix ldu lg2 lop3 mad mad24 madc mapa match max
		mbarrier membar min mma mov movmatrix mul mul24 multimem nanosleep neg not or pmevent popc prefetch prefetchu
		prmt rcp red redux rem ret rsqrt sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st stackrestore
		stacksave stmatrix sub subc suld suq sured sust szext tanh tcgen05 tensormap testp tex tld4 trap txq
		vabsdiff vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 vote
		vset vset2 vset4 vshl vshr vsub vsub2 vsub4 wgmma wmma xor`)
