package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/culvert-io/culvert/internal/dl"
)

// A compiler is a loaded libnvrtc.
type compiler struct {
	create, compileProgram, destroy dl.Func
	getLogSize, getLog              dl.Func
	getPTXSize, getPTX              dl.Func
	version                         string
}

func openCompiler(path string) (*compiler, error) {
	lib, err := dl.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w (fix: unpack the wheel nvidia-cuda-nvrtc-cu12 12.0 and pass its libnvrtc.so.12 with -nvrtc)", err)
	}
	c := &compiler{}
	var version dl.Func
	for name, f := range map[string]*dl.Func{
		"nvrtcVersion": &version, "nvrtcCreateProgram": &c.create, "nvrtcCompileProgram": &c.compileProgram,
		"nvrtcDestroyProgram": &c.destroy, "nvrtcGetProgramLogSize": &c.getLogSize, "nvrtcGetProgramLog": &c.getLog,
		"nvrtcGetPTXSize": &c.getPTXSize, "nvrtcGetPTX": &c.getPTX,
	} {
		if *f, err = lib.Sym(name); err != nil {
			return nil, err
		}
	}
	v := new([2]int32)
	if err := check("nvrtcVersion", version.Call(word(&v[0]), word(&v[1]))); err != nil {
		return nil, err
	}
	c.version = fmt.Sprintf("%d.%d", v[0], v[1])
	return c, nil
}

// compile returns PTX text.
func (c *compiler) compile(name string, src []byte, options ...string) ([]byte, error) {
	text, title := cString(string(src)), cString(filepath.Base(name))
	program := new(uintptr)
	if err := check("nvrtcCreateProgram", c.create.Call(word(program), word(text), word(title), 0, 0, 0)); err != nil {
		return nil, err
	}
	defer c.destroy.Call(word(program))
	list := make([]*byte, len(options))
	for i, o := range options {
		list[i] = cString(o)
	}
	r := c.compileProgram.Call(*program, uintptr(len(list)), word(unsafe.SliceData(list)))
	if err := check("nvrtcCompileProgram", r); err != nil {
		log, _ := c.fetch(*program, c.getLogSize, c.getLog) // the compile error is the one to report
		return nil, fmt.Errorf("%w\n%s", err, strings.TrimSpace(string(log)))
	}
	return c.fetch(*program, c.getPTXSize, c.getPTX)
}

// fetch gets the log or the PTX of a program.
func (c *compiler) fetch(program uintptr, size, get dl.Func) ([]byte, error) {
	n := new(uint64)
	if err := check("nvrtcGet...Size", size.Call(program, word(n))); err != nil {
		return nil, err
	}
	buf := make([]byte, *n+1)
	if err := check("nvrtcGet...", get.Call(program, word(&buf[0]))); err != nil {
		return nil, err
	}
	text, _, _ := bytes.Cut(buf, []byte{0})
	return text, nil
}

func check(op string, result uintptr) error {
	if code := int32(result); code != 0 {
		return fmt.Errorf("%s: error %d", op, code)
	}
	return nil
}

func cString(s string) *byte { return &append([]byte(s), 0)[0] }

// held keeps arguments of C functions alive. It is never freed: this program
// compiles once and exits.
var held []unsafe.Pointer

func word[T any](p *T) uintptr {
	held = append(held, unsafe.Pointer(p))
	return uintptr(unsafe.Pointer(p))
}
