package lab

import (
	"bytes"
	"cmp"
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

// packer writes an initial root file system. After an error its methods do nothing,
// and close returns the error.
type packer struct {
	cpio cpioWriter
	have map[string]bool // paths
}

func (p *packer) fail(err error) {
	p.cpio.err = cmp.Or(p.cpio.err, err)
}

// parents adds the directories above a path.
func (p *packer) parents(name string) {
	if dir := path.Dir(name); !p.have[dir] {
		p.parents(dir)
		p.have[dir] = true
		p.cpio.dir(dir, 0o755)
	}
}

// add adds a file of the guest, unless there is one.
func (p *packer) add(guest string, perm uint32, size int64, r io.Reader) {
	if name := strings.TrimPrefix(path.Clean(guest), "/"); !p.have[name] {
		p.have[name] = true
		p.parents(name)
		p.cpio.file(name, perm, size, r)
	}
}

func (p *packer) bytes(guest string, b []byte) {
	p.add(guest, 0o644, int64(len(b)), bytes.NewReader(b))
}

// file copies a file of the host.
func (p *packer) file(guest, host string) {
	f, err := os.Open(host)
	if err != nil {
		p.fail(err)
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		p.fail(err)
		return
	}
	p.add(guest, 0o755, st.Size(), f)
}

// program copies a program of the host and its libraries, which keep their paths.
func (p *packer) program(guest, host string) {
	libs, err := libraries(host)
	if err != nil {
		p.fail(err)
	}
	for _, l := range libs {
		p.file(l, l)
	}
	p.file(guest, host)
}

// tool copies a program that a package of the host has.
func (p *packer) tool(guest, name, pkg string) {
	host, err := findTool(name)
	if err != nil {
		p.fail(fmt.Errorf("%w (package %s)", err, pkg))
		return
	}
	p.program(guest, host)
}

// contents describes the root file system of one guest.
type contents struct {
	init     string            // init's binary
	programs map[string]string // programs of the host, by their path in the guest
	files    map[string]string // shared libraries and other files of the host, likewise
	mkfs     []string          // file systems whose mkfs is needed
	kernel   Kernel
	modules  []string
	job      job.Job
}

// pack writes the root file system, with the job and the modules it needs.
func (c contents) pack(w io.Writer) error {
	p := &packer{cpioWriter{w: w}, map[string]bool{".": true}}
	p.file("/init", c.init)
	for _, fs := range c.mkfs {
		p.tool("/sbin/mkfs."+fs, "mkfs."+fs, "xfsprogs or e2fsprogs")
	}
	p.tool("/bin/busybox", "busybox", "busybox-static")
	for guest, host := range c.programs {
		p.program(guest, host)
	}
	for guest, host := range c.files {
		if strings.Contains(filepath.Base(host), ".so") {
			p.program(guest, host)
		} else {
			p.file(guest, host)
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
	p.bytes(job.Path, b)
	return p.cpio.close()
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
		p.bytes(guest, b)
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
