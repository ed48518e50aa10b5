package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/crc32c"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
)

func TestMain(m *testing.M) {
	if text := os.Getenv("CULVERT_TEST_COPIER"); text != "" {
		if err := copier(strings.Split(text, ":")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// copier is the child: it copies a tree and is killed before step kill. kill 0
// prints how many steps there are.
func copier(args []string) error {
	kill, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	m, err := machine.FromSoft(soft.Config{GPUs: 1, Memory: 64 << 20}, "test")
	if err != nil {
		return err
	}
	drv, err := cufile.Open(m)
	if err != nil {
		return err
	}
	tree, err := PlanTree(context.Background(), args[0], args[1], PlanOptions{Preserve: true})
	if err != nil {
		return err
	}
	var steps atomic.Int64
	_, err = tree.Copy(context.Background(), drv, TreeOptions{Options: Options{Preserve: true, Buffer: 256 << 10, named: args[3] == "named", step: func() {
		if steps.Add(1) == kill {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}}, Jobs: 3})
	fmt.Print(steps.Load())
	return err
}

// runCopier runs the child and returns how many steps it made, -1 if killed.
func runCopier(t *testing.T, src, dst, how string, kill int64) int64 {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("CULVERT_TEST_COPIER=%s:%s:%d:%s", src, dst, kill, how))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if ee, ok := errors.AsType[*exec.ExitError](err); ok && ee.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return -1
	}
	if err != nil {
		t.Fatalf("%v: %s", err, errs.Bytes())
	}
	n, err := strconv.ParseInt(string(out), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// However often a copy is killed, what is there under its own name is whole, the
// old file or the new one, and in the end all of it is there and nothing else.
func TestKilledCopy(t *testing.T) {
	for _, how := range []string{"named", "nameless"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			killCopies(t, how)
		})
	}
}

func killCopies(t *testing.T, how string) {
	src, dir := forest(t), t.TempDir()
	steps := runCopier(t, src, filepath.Join(dir, "whole"), how, 0)
	kills := 30
	if testing.Short() {
		kills = 6
	}
	rng := rand.New(rand.NewPCG(1, 2))
	deaths, rounds := 0, 0
	dst, old := newDest(t, dir, 0)
	for range kills {
		// Mostly early, so that it dies more than once on the way.
		if runCopier(t, src, dst, how, 1+rng.Int64N(steps*2/3)) == -1 {
			deaths++
			if _, err := os.Stat(dst); err == nil {
				onlyWhole(t, src, dst, old)
			}
			if rng.IntN(4) > 0 {
				continue
			}
			if runCopier(t, src, dst, how, 0) < 0 {
				t.Fatal("killed without a reason")
			}
		}
		sameTree(t, src, dst)
		rounds++
		dst, old = newDest(t, dir, rounds)
	}
	t.Logf("%d of %d died, %d copies were completed, of some %d steps each", deaths, kills, rounds, steps)
	if deaths < kills/2 {
		t.Errorf("only %d of %d died", deaths, kills)
	}
}

// newDest is a destination: none, or one where older files are.
func newDest(t *testing.T, dir string, n int) (dst string, old map[string]string) {
	t.Helper()
	dst = filepath.Join(dir, strconv.Itoa(n))
	if n%2 == 0 {
		return dst, nil
	}
	for _, name := range []string{"a.bin", "sub/c.bin"} {
		path := filepath.Join(dst, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("old "+name), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	old = contents(t, dst)
	maps.DeleteFunc(old, func(_, what string) bool { return strings.HasPrefix(what, "directory") })
	return dst, old
}

func sumBytes(p []byte) uint32 { return crc32c.Sum(p) }
