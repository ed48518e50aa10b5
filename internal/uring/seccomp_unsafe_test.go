package uring

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Docker's default profile answers EPERM to io_uring_setup. The test runs
// itself again under such a profile.
func TestSeccomp(t *testing.T) {
	const marker = "CULVERT_TEST_SECCOMP"
	if os.Getenv(marker) != "" {
		refuse(t, unix.SYS_IO_URING_SETUP, unix.EPERM)
		if _, err := New(8); !errors.Is(err, ErrUnavailable) || !errors.Is(err, unix.EPERM) {
			t.Errorf("New under seccomp: %v, want ErrUnavailable and EPERM", err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSeccomp$")
	cmd.Env = append(os.Environ(), marker+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Memory is not given back while the kernel may still write to it, even if the
// kernel refuses to be asked.
func TestCloseWaitsForTheKernel(t *testing.T) {
	const marker = "CULVERT_TEST_CLOSE"
	if os.Getenv(marker) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCloseWaitsForTheKernel$")
		cmd.Env = append(os.Environ(), marker+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	runtime.LockOSThread()
	r := open(t, 8)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[1]) // ends the read in any case
	got := make([]byte, 5)
	if err := errors.Join(r.Read(pipe[0], got, -1, 0), r.Submit(0)); err != nil {
		t.Fatal(err)
	}
	// What the kernel waits for comes when drain has been told to wait. The process
	// has no other test to do.
	pause = func(time.Duration) {
		if _, err := unix.Write(pipe[1], []byte("hello")); err != nil {
			t.Error(err)
		}
	}
	refuse(t, unix.SYS_IO_URING_ENTER, unix.EAGAIN)
	if err := r.drain(); err != nil || string(got) != "hello" {
		t.Errorf("%v, read %q", err, got)
	}
}

// refuse makes a system call fail on this thread.
func refuse(t *testing.T, call uint32, errno unix.Errno) {
	runtime.LockOSThread() // for good: the thread ends with the test
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Skipf("needs seccomp: %v", err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		t.Skipf("needs seccomp: %v", err)
	}
}
