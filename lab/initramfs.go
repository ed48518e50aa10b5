package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/culvert-io/culvert/lab/internal/job"
)

// packer writes an initial root file system and knows which paths are in it.
type packer struct {
	cpio *cpioWriter
	have map[string]bool
}

func newPacker(w io.Writer) *packer { return &packer{&cpioWriter{w: w}, map[string]bool{}} }

// parents adds the directories above a path.
func (p *packer) parents(name string) error {
	dir := path.Dir(name)
	if dir == "." || p.have[dir] {
		return nil
	}
	if err := p.parents(dir); err != nil {
		return err
	}
	p.have[dir] = true
	return p.cpio.dir(dir, 0o755)
}

// claim prepares a new entry, and reports false if there is one.
func (p *packer) claim(guest string) (name string, ok bool, err error) {
	name = strings.TrimPrefix(path.Clean(guest), "/")
	if p.have[name] {
		return name, false, nil
	}
	p.have[name] = true
	return name, true, p.parents(name)
}

func (p *packer) bytes(guest string, perm uint32, b []byte) error {
	name, ok, err := p.claim(guest)
	if !ok || err != nil {
		return err
	}
	return p.cpio.file(name, perm, int64(len(b)), bytes.NewReader(b))
}

// file copies a file of the host.
func (p *packer) file(guest, host string) error {
	name, ok, err := p.claim(guest)
	if !ok || err != nil {
		return err
	}
	f, err := os.Open(host)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return p.cpio.file(name, 0o755, st.Size(), f)
}

// program copies a program of the host and its libraries, which keep their paths.
func (p *packer) program(guest, host string) error {
	libs, err := libraries(host)
	if err != nil {
		return err
	}
	for _, l := range libs {
		if err := p.file(l, l); err != nil {
			return err
		}
	}
	return p.file(guest, host)
}

// contents describes the root file system of one guest.
type contents struct {
	init     string            // init's binary
	programs map[string]string // programs of the host, by their path in the guest
	mkfs     []string          // file systems whose mkfs is needed
	kernel   Kernel
	modules  []string
	job      job.Job
}

// pack writes the root file system, with the job and the modules it needs.
func (c contents) pack(w io.Writer) error {
	p := newPacker(w)
	if err := p.file("/init", c.init); err != nil {
		return err
	}
	if err := c.packTools(p); err != nil {
		return err
	}
	for guest, host := range c.programs {
		if err := p.program(guest, host); err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
	}
	j := c.job
	var err error
	if j.Modules, err = c.packModules(p); err != nil {
		return fmt.Errorf("kernel modules: %w", err)
	}
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if err := p.bytes(job.Path, 0o644, b); err != nil {
		return err
	}
	return p.cpio.close()
}

func (c contents) packTools(p *packer) error {
	for _, fs := range c.mkfs {
		tool := "mkfs." + fs
		host, err := findTool(tool)
		if err != nil {
			return fmt.Errorf("%w (packages xfsprogs and e2fsprogs)", err)
		}
		if err := p.program("/sbin/"+tool, host); err != nil {
			return err
		}
	}
	host, err := findTool("busybox")
	if err != nil {
		return fmt.Errorf("%w (package busybox-static)", err)
	}
	return p.program("/bin/busybox", host)
}

// findTool also looks in the directories of administrators' programs, which are not
// in every PATH.
func findTool(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// packModules adds the kernel's modules, decompressed, and lists them in load order.
func (c contents) packModules(p *packer) ([]string, error) {
	if c.kernel.Modules == "" {
		return nil, nil
	}
	table, err := readModuleTable(c.kernel.Modules)
	if err != nil {
		return nil, err
	}
	files, err := table.order(c.modules)
	if err != nil {
		return nil, err
	}
	var packed []string
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(c.kernel.Modules, f))
		if err != nil {
			return nil, err
		}
		if !bytes.HasPrefix(b, []byte("\x7fELF")) {
			if b, err = decompress(b); err != nil {
				return nil, fmt.Errorf("%s: %w", f, err)
			}
		}
		guest := "/lab/modules/" + moduleName(f) + ".ko"
		if err := p.bytes(guest, 0o644, b); err != nil {
			return nil, err
		}
		packed = append(packed, guest)
	}
	return packed, nil
}

// packFile packs into a new file.
func (c contents) packFile(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(c.pack(f), f.Close()); err != nil {
		return fmt.Errorf("initial root file system: %w", err)
	}
	return nil
}
