package transcript

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/dev"
)

// mmap maps, and keeps the mapping under its name.
func (r *replay) mmap(e *Event) (string, error) {
	n, err := r.node(e)
	if err != nil {
		return "", err
	}
	if e.Offset, err = eval(e.Args.Offset, r.b); err != nil {
		return "", err
	}
	var m dev.Mapping
	switch prot := protection(e.Args.Prot); {
	case r.files[e.FD].readOnly && prot&unix.PROT_WRITE != 0:
		err = syscall.EACCES
	case strings.Contains(e.Args.Flags, "PRIVATE"):
		if r.Private == nil {
			return "", fmt.Errorf("the step needs private mappings")
		}
		m, err = r.Private(n, int64(e.Offset), int(e.Args.Length), prot)
	default:
		m, err = n.Mmap(int64(e.Offset), int(e.Args.Length), prot)
	}
	diff := e.answer(err)
	if err != nil {
		return diff, nil
	}
	e.Got.Ret = "mapping"
	name := nameIn(string(e.Ret))
	if name == "" { // the recorded call failed
		return diff, m.Unmap()
	}
	r.b[name] = uint64(m.Addr())
	delete(r.missing, name)
	r.views = append(r.views, &view{Mapping: m, name: name})
	return diff, nil
}

func protection(s string) (prot int) {
	for name, bit := range map[string]int{"READ": unix.PROT_READ, "WRITE": unix.PROT_WRITE, "EXEC": unix.PROT_EXEC} {
		if strings.Contains(s, name) {
			prot |= bit
		}
	}
	return prot
}

// find is the mapping that contains [addr, addr+n), or nil.
func (r *replay) find(addr, n uint64) (v *view, off uint64) {
	for _, v := range r.views {
		if start := uint64(v.Addr()); addr >= start && addr-start <= uint64(v.Len()) && n <= uint64(v.Len())-(addr-start) {
			return v, addr - start
		}
	}
	return nil, 0
}

// munmap unmaps. A part of a mapping only loses its access rights: dev.Mapping
// is unmapped as a whole, when the last part goes.
func (r *replay) munmap(e *Event) (string, error) {
	var err error
	if e.Addr, err = eval(e.Args.At, r.b); err != nil {
		return "", err
	}
	v, off := r.find(e.Addr, e.Args.Length)
	if v == nil {
		return "", fmt.Errorf("nothing is mapped at %#x", e.Addr)
	}
	if v.gone += int(e.Args.Length); v.gone < v.Len() {
		return e.answer(unix.Mprotect(dev.Bytes(v)[off:off+e.Args.Length], unix.PROT_NONE)), nil
	}
	r.views = slices.DeleteFunc(r.views, func(o *view) bool { return o == v })
	return e.answer(v.Unmap()), nil
}

// access loads from a mapping or a buffer, or stores to it.
func (r *replay) access(e *Event) (string, error) {
	if err := r.buffers([]string{strings.SplitN(nameIn(e.Args.At), "+", 2)[0]}); err != nil {
		return "", err
	}
	var err error
	if e.Addr, err = eval(e.Args.At, r.b); err != nil {
		return "", err
	}
	data, err := r.data(e)
	if err != nil {
		return "", err
	}
	load := e.Args.Op == "load"
	if v, off := r.find(e.Addr, e.Args.Length); v != nil {
		e.Got.Ret = "0"
		mem := dev.Bytes(v)[off : off+e.Args.Length]
		if touch(func() { move(mem, data, load) }) {
			e.Got.Ret = "fault"
		}
	} else if err := r.own(e.Addr, data, load); err != nil {
		return "", err
	} else {
		e.Got.Ret = "0"
	}
	if want := strings.Replace(string(e.Ret), "SIGBUS", "fault", 1); e.Got.Ret != want {
		return fmt.Sprintf("access returned %q, want %q", e.Got.Ret, want), nil
	}
	if e.Got.Out = data; load && e.Out != nil && e.Got.Ret == "0" {
		if err := e.Out.Match(data, r.b, volatile); err != nil {
			return err.Error(), nil
		}
	}
	return "", nil
}

func move(mem, data []byte, load bool) {
	if load {
		copy(data, mem)
		return
	}
	copy(mem, data)
}

// own accesses memory as its owner, the GPU.
func (r *replay) own(addr uint64, data []byte, load bool) error {
	if r.Load == nil || r.Store == nil {
		return fmt.Errorf("the step needs the owner of the memory")
	}
	if load {
		return r.Load(addr, data)
	}
	return r.Store(addr, data)
}

// data is the bytes to store, or room for the bytes to load.
func (r *replay) data(e *Event) ([]byte, error) {
	const most = 64 << 20
	if e.Args.Length > most {
		return nil, fmt.Errorf("access of %d bytes exceeds %d", e.Args.Length, most)
	}
	data := make([]byte, e.Args.Length)
	switch e.Args.Op {
	case "load":
	case "fill":
		var seed int
		if _, err := fmt.Sscanf(e.Args.With, "pattern %d", &seed); err != nil {
			return nil, fmt.Errorf("fill with %q: %w", e.Args.With, err)
		}
		for i := range data {
			data[i] = byte(seed + i + 7*(i>>8) + 31*(i>>16))
		}
	case "store":
		if e.In == nil {
			break
		}
		in, err := e.In.Fill(r.b)
		if err != nil {
			return nil, err
		}
		if len(in) != len(data) {
			return nil, fmt.Errorf("%d bytes to store, want %d", len(in), len(data))
		}
		copy(data, in)
	default:
		return nil, fmt.Errorf("unknown access %q", e.Args.Op)
	}
	return data, nil
}

// read reads a file of /proc or /sys.
func (r *replay) read(e *Event) (string, error) {
	text, err := fs.ReadFile(r.OS.FS(), strings.TrimPrefix(e.Args.Path, "/"))
	e.Got.Text = string(text)
	if errors.Is(err, fs.ErrNotExist) {
		err = syscall.ENOENT
	}
	diff := e.answer(err)
	if diff != "" || e.Args.Text == nil {
		return diff, nil
	}
	if err := matchText(*e.Args.Text, e.Got.Text, r.b, volatile); err != nil {
		return err.Error(), nil
	}
	return "", nil
}
