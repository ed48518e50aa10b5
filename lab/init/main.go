// Command init is the first process of a guest of the lab. It mounts what a
// program expects of Linux, prepares the drives and shares that its job names,
// runs one command and reports its exit code by ending the machine.
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
		fmt.Fprintln(os.Stderr, "init: this is the first process of a guest of the lab; it does nothing elsewhere")
		os.Exit(2)
	}
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab init:", err)
	}
	// What was printed must be out before the machine ends.
	unix.IoctlSetInt(int(os.Stderr.Fd()), unix.TCSBRK, 1)
	if err := report(code); err != nil {
		fmt.Fprintln(os.Stderr, "lab init:", err)
	}
	// Reached only without the exit device: power off without a report.
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

// prepare does what has to be there before the command runs.
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
		return fmt.Errorf("exit code %d is lost: %w", code, err)
	}
	_, err = f.WriteAt([]byte{job.ExitByte(code)}, job.ExitPort)
	return err
}
