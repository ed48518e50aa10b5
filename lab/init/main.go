// Command init is the first process of a guest of the lab. It mounts the usual file
// systems of Linux and those of its job, runs one command and reports its exit code
// by ending the machine.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/internal/job"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: must be the first process of a guest of the lab")
		os.Exit(2)
	}
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab init:", err)
	}
	// Output must be written before the machine ends.
	unix.IoctlSetInt(int(os.Stderr.Fd()), unix.TCSBRK, 1)
	if err := report(code); err != nil {
		fmt.Fprintln(os.Stderr, "lab init:", err)
	}
	// Reached only without the exit device: power off without an exit code.
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() (int, error) {
	if err := mountSystem(); err != nil {
		return job.SetupFailed, err
	}
	b, err := os.ReadFile(job.Path)
	if err != nil {
		return job.SetupFailed, err
	}
	var j job.Job
	if err := json.Unmarshal(b, &j); err != nil {
		return job.SetupFailed, fmt.Errorf("%s: %w", job.Path, err)
	}
	if err := prepare(j); err != nil {
		return job.SetupFailed, err
	}
	code, err := execute(j)
	if err != nil {
		return job.SetupFailed, err
	}
	return code, unmount(j)
}

// prepare sets up everything that the command needs.
func prepare(j job.Job) error {
	if err := seedRandom(j.Seed); err != nil {
		return err
	}
	for _, m := range j.Modules {
		if err := loadModule(m); err != nil {
			return err
		}
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	if err := installTools(); err != nil {
		return err
	}
	for _, s := range j.Shares {
		if err := mountShare(s); err != nil {
			return err
		}
	}
	for _, m := range j.Mounts {
		if err := mountDrive(m, j.Boot == 1); err != nil {
			return fmt.Errorf("drive %s: %w", m.Drive, err)
		}
	}
	return nil
}

func loadModule(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := unix.InitModule(b, ""); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("module %s: %w", filepath.Base(path), err)
	}
	return nil
}

// report ends the machine with an exit code.
func report(code int) error {
	unix.Sync()
	f, err := os.OpenFile("/dev/port", os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("report exit code %d: %w", code, err)
	}
	_, err = f.WriteAt([]byte{job.ExitByte(code)}, job.ExitPort)
	return err
}

// loopbackUp enables 127.0.0.1, where tests listen.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	return nil
}

// seedRandom seeds the kernel's random number generator from the host. Without it a
// guest has no randomness for seconds, and mkfs waits for some.
func seedRandom(seed []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(seed); err != nil {
		return err
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.RNDADDTOENTCNT, 8*len(seed)); err != nil {
		return fmt.Errorf("credit randomness: %w", err)
	}
	return nil
}
