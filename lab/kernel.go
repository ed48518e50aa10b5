package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// KernelEnv is the variable with the path of a kernel, or Debian.
const KernelEnv = "CULVERT_LAB_KERNEL"

// Debian is the value of KernelEnv for Debian's newest kernel, whatever was built.
const Debian = "debian"

// A Kernel is what a guest boots.
type Kernel struct {
	Image   string // an ELF vmlinux
	Modules string // its directory of modules; "" when everything is built in
}

// cacheDir is where kernels and init are kept between runs.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("lab cache: %w", err)
	}
	dir := filepath.Join(base, "culvert", "lab")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("lab cache: %w", err)
	}
	return dir, nil
}

// ResolveKernel finds the kernel to boot: the one of KernelEnv, the one that "make
// lab-kernel" built, or Debian's newest, downloaded on first use. Downloads are
// reported to log.
func ResolveKernel(ctx context.Context, log io.Writer) (Kernel, error) {
	cache, err := cacheDir()
	if err != nil {
		return Kernel{}, err
	}
	path := os.Getenv(KernelEnv)
	if path != "" && path != Debian {
		k, err := readyKernel(cache, path)
		if err != nil {
			return Kernel{}, fmt.Errorf("%s: %w", KernelEnv, err)
		}
		return k, nil
	}
	built := filepath.Join(cache, "kernel", "vmlinux")
	if _, err := os.Stat(built); err == nil && path != Debian {
		return Kernel{Image: built}, nil
	}
	k, err := debianKernel(ctx, filepath.Join(cache, "debian"), log)
	if err != nil {
		return Kernel{}, fmt.Errorf("no kernel for the lab: %w (fix: run make lab-kernel, or set %s)", err, KernelEnv)
	}
	return k, nil
}

// readyKernel returns a vmlinux; a compressed one is unpacked into the cache, once
// per version of the file.
func readyKernel(cache, path string) (Kernel, error) {
	st, err := os.Stat(path)
	if err != nil {
		return Kernel{}, err
	}
	if filepath.Ext(path) != ".xz" {
		return Kernel{Image: path}, nil
	}
	name := fmt.Sprintf("%s-%d-%d", strings.TrimSuffix(filepath.Base(path), ".xz"), st.Size(), st.ModTime().UnixNano())
	image := filepath.Join(cache, "unpacked", name)
	if _, err := os.Stat(image); err == nil {
		return Kernel{Image: image}, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return Kernel{}, err
	}
	elf, err := decompress(b)
	if err != nil {
		return Kernel{}, fmt.Errorf("%s: %w", path, err)
	}
	return Kernel{Image: image}, writeFile(image, elf)
}

// writeFile creates a file atomically: several guests may start at once.
func writeFile(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, 0o644, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

// imagePackage is a package with a kernel, and its version. Others are for real time and
// clouds, unsigned, or have debugging symbols.
var imagePackage = regexp.MustCompile(`(?m)^linux-image-(\d[0-9.]*(?:[-+](?:deb)?[0-9]+)*)-amd64 `)

// newestImage finds the package with the newest kernel in the output of apt-cache search.
func newestImage(list string) string {
	var version []int
	for _, m := range imagePackage.FindAllStringSubmatch(list, -1) {
		var v []int
		for _, number := range regexp.MustCompile(`\d+`).FindAllString(m[1], -1) {
			n, _ := strconv.Atoi(number)
			v = append(v, n)
		}
		if slices.Compare(v, version) > 0 {
			version, list = v, m[1]
		}
	}
	if version == nil {
		return ""
	}
	return "linux-image-" + list + "-amd64"
}

// debianKernel returns Debian's newest kernel. The package is unpacked, not
// installed.
func debianKernel(ctx context.Context, cache string, log io.Writer) (Kernel, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "search", "--names-only", "^linux-image-.*-amd64$").Output()
	if err != nil {
		return Kernel{}, fmt.Errorf("apt-cache search: %w", err)
	}
	pkg := newestImage(string(out))
	if pkg == "" {
		return Kernel{}, errors.New("apt-cache has no linux-image (fix: apt-get update)")
	}
	dir := filepath.Join(cache, pkg)
	k := Kernel{Image: filepath.Join(dir, "vmlinux"), Modules: filepath.Join(dir, "modules")}
	if _, err := os.Stat(k.Image); err == nil {
		return k, nil
	}
	fmt.Fprintf(log, "lab: downloading %s (about 100 MB, once)\n", pkg)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Kernel{}, err
	}
	tmp, err := os.MkdirTemp(cache, ".new-")
	if err != nil {
		return Kernel{}, err
	}
	defer os.RemoveAll(tmp)
	if err := unpackDebian(ctx, tmp, pkg); err != nil {
		return Kernel{}, fmt.Errorf("%s: %w", pkg, err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return Kernel{}, err
	}
	return k, nil
}

// unpackDebian extracts vmlinux and modules from a kernel package into dir.
func unpackDebian(ctx context.Context, dir, pkg string) error {
	if err := command(ctx, dir, "apt-get", "-o", "APT::Sandbox::User=root", "download", pkg); err != nil {
		return err
	}
	deb, err := one(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	if err := command(ctx, dir, "dpkg", "-x", deb, root); err != nil {
		return err
	}
	bzImage, err := one(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil {
		return err
	}
	b, err := os.ReadFile(bzImage)
	if err != nil {
		return err
	}
	elf, err := extractVmlinux(b)
	if err != nil {
		return fmt.Errorf("%s: %w", bzImage, err)
	}
	// The package has no table of dependencies: depmod writes it at installation.
	version := strings.TrimPrefix(filepath.Base(bzImage), "vmlinuz-")
	if err := command(ctx, dir, "depmod", "--basedir", root, version); err != nil {
		return err
	}
	modules, err := one(filepath.Join(root, "lib", "modules", "*"), filepath.Join(root, "usr", "lib", "modules", "*"))
	if err != nil {
		return err
	}
	if err := os.Rename(modules, filepath.Join(dir, "modules")); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(root), os.Remove(deb)); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "vmlinux"), elf)
}

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// one returns the only file that matches any of the patterns.
func one(patterns ...string) (string, error) {
	var all []string
	for _, p := range patterns {
		ms, err := filepath.Glob(p)
		if err != nil {
			return "", err
		}
		all = append(all, ms...)
	}
	if len(all) != 1 {
		return "", fmt.Errorf("%d files match %s, want 1", len(all), strings.Join(patterns, " or "))
	}
	return all[0], nil
}
