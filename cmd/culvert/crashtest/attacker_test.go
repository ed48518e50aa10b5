package crashtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The attacker is a process of another user. It does what requests say.

const (
	attackerRole = "CRASHTEST_ATTACKER"
	attackerUser = 65534
)

// plants are what the attacker puts at a name.
var plants = []string{"link to a file", "link to no file", "link to a directory", "FIFO", "directory", "file", "locked file", "lock on the directory"}

// A request is one thing to do. Reading is to look for the secret in everything below
// Path that the attacker can open, or has open.
type request struct {
	Plant   string
	Path    string
	Outside string // the victim's directory, where links lead to
	Remove  bool   // what is there, where that is possible
	Read    []byte // secret to look for
}

type response struct {
	Done  bool
	Where string // the secret was read there
}

// An attacker is the process, seen from the test.
type attacker struct {
	in   *json.Encoder
	out  *json.Decoder
	stop func()
}

// newAttacker starts the process. Each world has its own: it keeps files open. The
// caller must stop it.
func newAttacker(t *testing.T) *attacker {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), attackerRole+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return &attacker{json.NewEncoder(in), json.NewDecoder(out), stop}
}

func (a *attacker) do(r request) (response, error) {
	var got response
	if err := a.in.Encode(r); err != nil {
		return got, fmt.Errorf("attacker: %w", err)
	}
	if err := a.out.Decode(&got); err != nil {
		return got, fmt.Errorf("attacker: %w", err)
	}
	return got, nil
}

// attack is the process itself.
func attack() {
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(attackerUser), syscall.Setuid(attackerUser)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	syscall.Umask(0)
	var open []*os.File
	requests, responses := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r request
		if err := requests.Decode(&r); err != nil {
			return
		}
		var got response
		if r.Read != nil {
			got.Where = r.search(open)
		} else {
			f, err := r.plant()
			got.Done = err == nil
			if f != nil {
				open = append(open, f)
			}
		}
		if err := responses.Encode(got); err != nil {
			return
		}
	}
}

// plant puts something at a name. Files stay open, and locked.
func (r *request) plant() (*os.File, error) {
	if st, err := os.Stat(filepath.Dir(r.Path)); err != nil || !st.IsDir() {
		return nil, unix.ENOTDIR // RemoveAll would wait for the other end of a FIFO
	}
	if r.Remove {
		_ = os.RemoveAll(r.Path)
	}
	switch r.Plant {
	case "link to a file":
		return nil, os.Symlink(filepath.Join(r.Outside, "precious"), r.Path)
	case "link to no file":
		return nil, os.Symlink(filepath.Join(r.Outside, "new"), r.Path)
	case "link to a directory":
		return nil, os.Symlink(r.Outside, r.Path)
	case "FIFO":
		return nil, unix.Mkfifo(r.Path, 0o666)
	case "directory":
		return nil, os.Mkdir(r.Path, 0o777)
	case "file":
		return os.OpenFile(r.Path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	case "locked file":
		f, err := os.OpenFile(r.Path, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o666)
		if err != nil {
			return nil, err
		}
		return f, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	f, err := os.OpenFile(filepath.Dir(r.Path), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return f, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// search returns where the attacker can read the secret.
func (r *request) search(open []*os.File) (where string) {
	has := func(f *os.File) bool {
		data, _ := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
		return bytes.Contains(data, r.Read)
	}
	for _, f := range open {
		if has(f) {
			return f.Name()
		}
	}
	_ = filepath.WalkDir(r.Path, func(path string, _ fs.DirEntry, _ error) error {
		if f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
			defer f.Close()
			if has(f) {
				where = path
			}
		}
		return nil
	})
	return where
}
