// Package inside is for tests that run in a guest of the lab: which boot this is,
// where the drives are, and requests to the host to unplug a drive or cut the power.
//
// It depends on the kernel, never on the code under test.
package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/lab/internal/job"
)

// Report prints a line that the host shows below the result of the suite: a measurement
// without a limit.
func Report(format string, args ...any) {
	fmt.Printf("%s%s\n", job.Report, fmt.Sprintf(format, args...))
}

// Boot is 0 outside of a guest, 1 in a fresh one, and one more after each power cut.
func Boot() int {
	n, _ := strconv.Atoi(os.Getenv(job.BootEnv))
	return n
}

// Guest is 1 or 2 in a guest with a peer, which has the other number, and 0 elsewhere.
func Guest() int {
	n, _ := strconv.Atoi(os.Getenv(job.GuestEnv))
	return n
}

// Require skips a test outside of a guest.
func Require(t interface {
	Helper()
	Skip(args ...any)
},
) {
	t.Helper()
	if Boot() == 0 {
		t.Skip("needs a guest of the lab: go run ./lab/cmd/lab suites")
	}
}

// Wanted returns a variable that the suites of a test set. Without it the test is
// skipped: it is for another guest.
func Wanted(t interface {
	Helper()
	Skip(args ...any)
}, name string,
) string {
	t.Helper()
	Require(t)
	v, ok := os.LookupEnv(name)
	if !ok {
		t.Skip("needs " + name + ", which the suites of this test set")
	}
	return v
}

var namespaceName = regexp.MustCompile(`^nvme\d+n\d+$`)

// Disk returns the block device of the drive with the given id: /dev/nvme0n1.
func Disk(id string) (string, error) {
	ctrl, err := controller(id)
	if err != nil {
		return "", err
	}
	dev, err := namespaceIn(ctrl)
	if err != nil {
		return "", fmt.Errorf("drive %s: %w", id, err)
	}
	return dev, nil
}

// namespaceIn is the block device in a directory of sysfs.
func namespaceIn(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if namespaceName.MatchString(e.Name()) {
			return "/dev/" + e.Name(), nil
		}
	}
	return "", fmt.Errorf("%s has no namespace yet: %w", dir, os.ErrNotExist)
}

// PCI returns the sysfs directory of a drive's PCI function.
func PCI(id string) (string, error) {
	ctrl, err := controller(id)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(filepath.Join(ctrl, "device"))
}

// Dir returns where the drive with the given id is mounted, if it has a file system.
func Dir(id string) string { return filepath.Join(job.MountRoot, id) }

// controller is the sysfs directory of an NVMe controller.
func controller(id string) (string, error) { return find("/sys/class/nvme/*/serial", id) }

// find returns the directory of the file that matches pattern and holds text.
func find(pattern, text string) (string, error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(b)) == text {
			return filepath.Dir(f), nil
		}
	}
	return "", fmt.Errorf("no %s with %q: %w", pattern, text, os.ErrNotExist)
}

// Unplug asks the host to remove a drive from its slot. It returns when the kernel
// has released the drive.
func Unplug(id string) error { return Ask(job.Unplug, id) }

// PowerCut kills this guest and starts it again with the same drives. The same
// command runs again, with a higher Boot. PowerCut returns only on failure.
func PowerCut() error {
	if err := Ask(job.PowerCut); err != nil {
		return err
	}
	return errors.New("powercut: the guest is still running")
}
