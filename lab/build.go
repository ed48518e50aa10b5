package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const initPackage = "github.com/culvert-io/culvert/lab/init"

// buildInit builds init into the cache. The go command keeps an up-to-date binary;
// the lock keeps two guests from writing it concurrently.
func buildInit(ctx context.Context) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(cache, "init.lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close() // which unlocks it
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", os.NewSyscallError("flock", err)
	}
	init := filepath.Join(cache, "init")
	return init, GoBuild(ctx, "build", "-o", init, initPackage)
}

// GoBuild runs a go command that builds for the guest: static, without the parts of
// the project that load shared libraries.
func GoBuild(ctx context.Context, verb string, args ...string) error {
	_, err := goCommand(ctx, append([]string{verb, "-tags", "nodl"}, args...)...)
	return err
}

// GoBuildLoader is GoBuild for programs that load shared libraries.
func GoBuildLoader(ctx context.Context, verb string, args ...string) error {
	_, err := goCommand(ctx, append([]string{verb}, args...)...)
	return err
}

// PackageDir returns the directory of a package of this module.
func PackageDir(ctx context.Context, pkg string) (string, error) {
	out, err := goCommand(ctx, "list", "-f", "{{.Dir}}", pkg)
	return strings.TrimSpace(out), err
}

// goCommand returns the standard output of a go command.
func goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}
