package tensor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
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
)

func TestMain(m *testing.M) {
	if os.Getenv("CULVERT_TEST_SAVER") != "" {
		if err := saver(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// versionSources is what version v of the crashing process saves.
func versionSources(v int64) []Source {
	seed := uint64(v)
	return []Source{
		source("w", U8, seed, 5*pageSize),
		source("odd", U8, seed+1, 3001),
		source("version", I64, seed+2, 1),
	}
}

// saver is the child: it saves a few versions and is killed before step kill of
// all of them, counted through every step. kill 0 prints their number.
func saver() error {
	args := strings.Split(os.Getenv("CULVERT_TEST_SAVER"), ":")
	kind, path := args[0], args[1]
	first, _ := strconv.ParseInt(args[2], 10, 64)
	kill, _ := strconv.ParseInt(args[3], 10, 64)
	var steps atomic.Int64
	opts := &SaveOptions{Chunk: pageSize, workers: 3, step: func(string) {
		if steps.Add(1) == kill {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}}
	for v := first; v < first+3; v++ {
		var err error
		if kind == "file" {
			_, err = Save(context.Background(), path, versionSources(v), opts)
		} else {
			c := &Checkpoints{Dir: path, Keep: 2}
			_, err = c.Save(context.Background(), v, versionSources(v), opts)
		}
		if err != nil {
			return err
		}
	}
	fmt.Print(steps.Load())
	return nil
}

// runSaver runs the child and returns how many steps it made, -1 if killed.
func runSaver(t *testing.T, kind, path string, first, kill int64) int64 {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("CULVERT_TEST_SAVER=%s:%s:%d:%d", kind, path, first, kill))
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

// versionOf finds out which version a file holds, all of it.
func versionOf(t *testing.T, path string, upTo int64) int64 {
	t.Helper()
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	w, odd := readTensor(t, m, "w"), readTensor(t, m, "odd")
	for v := range upTo + 1 {
		if bytes.Equal(w, noise(5*pageSize, uint64(v))) {
			if !bytes.Equal(odd, noise(3001, uint64(v)+1)) {
				t.Fatalf("%s is a mixture", path)
			}
			return v
		}
	}
	t.Fatalf("%s holds no version", path)
	return 0
}

func kills(t *testing.T) int {
	if testing.Short() {
		return 10
	}
	return 100
}

// A process that is killed while it replaces a file leaves the old one or the
// new one, and a manifest that fits.
func TestKilledSave(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "m.safetensors")
	steps := runSaver(t, "file", path, 0, 0)
	have := versionOf(t, path, 2)
	rng := rand.New(rand.NewPCG(1, 2))
	for range kills(t) {
		first := have + 1
		if n := runSaver(t, "file", path, first, 1+rng.Int64N(steps)); n != -1 {
			t.Fatalf("not killed: %d steps of %d", n, steps)
		}
		now := versionOf(t, path, first+2)
		if now < have {
			t.Fatalf("version %d became %d", have, now)
		}
		have = now
		if _, err := Verify(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	// The next one that lives cleans up.
	runSaver(t, "file", path, have+1, 0)
	if left := listDir(t, dir); len(left) != 2 {
		t.Errorf("left behind: %v", left)
	}
}

// A process that is killed while it saves checkpoints leaves only complete ones
// under their names.
func TestKilledCheckpoint(t *testing.T) {
	t.Parallel()
	c := &Checkpoints{Dir: filepath.Join(t.TempDir(), "run"), Keep: 2}
	steps := runSaver(t, "checkpoint", c.Dir, 0, 0)
	next, last := int64(3), int64(2)
	rng := rand.New(rand.NewPCG(3, 4))
	for range kills(t) {
		if n := runSaver(t, "checkpoint", c.Dir, next, 1+rng.Int64N(steps)); n != -1 {
			t.Fatalf("not killed: %d steps of %d", n, steps)
		}
		list, err := numbers(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range list {
			if _, err := Verify(t.Context(), c.Path(step)); err != nil {
				t.Fatal(err)
			}
			if v := versionOf(t, c.Path(step), next+2); v != step {
				t.Fatalf("step %d holds version %d", step, v)
			}
		}
		latest, err := latestStep(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(c.Path(latest)); err != nil {
			t.Fatalf("latest is %d: %v", latest, err)
		}
		if latest < last {
			t.Fatalf("latest was %d and is %d", last, latest)
		}
		last, next = latest, list[len(list)-1]+1
	}
	runSaver(t, "checkpoint", c.Dir, next, 0)
	want := []string{"latest", fmt.Sprintf("step-%09d", next+1), fmt.Sprintf("step-%09d", next+2)}
	if left := listDir(t, c.Dir); fmt.Sprint(left) != fmt.Sprint(want) {
		t.Errorf("the directory holds %v, want %v", left, want)
	}
}

func TestCheckpoints(t *testing.T) {
	c := &Checkpoints{Dir: filepath.Join(t.TempDir(), "a", "b"), Keep: 2}
	if _, err := latestStep(c); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("latest of nothing: %v", err)
	}
	save := func(step int64) {
		t.Helper()
		if _, err := c.Save(t.Context(), step, versionSources(step), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []int64{10, 30, 20, 1_000_000_000_000} {
		save(step)
	}
	steps, err := numbers(c)
	if err != nil || fmt.Sprint(steps) != "[20 1000000000000]" {
		t.Errorf("steps %v, %v", steps, err)
	}
	// Going back to an earlier step is not undone by its number.
	save(5)
	if latest, err := latestStep(c); err != nil || latest != 5 {
		t.Errorf("latest %d, %v", latest, err)
	}
	if steps, _ := numbers(c); fmt.Sprint(steps) != "[5 1000000000000]" {
		t.Errorf("steps %v", steps)
	}
	if _, err := c.Save(t.Context(), 5, nil, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("step 5 twice: %v", err)
	}
	if _, err := c.Save(t.Context(), -1, nil, nil); err == nil {
		t.Error("step -1 was accepted")
	}
	m, err := Open(filepath.Join(c.Dir, "latest"))
	if err != nil || len(m.Tensors) != 3 {
		t.Errorf("opening latest: %v, %v", m, err)
	}
}
