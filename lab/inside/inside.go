// Package inside is what a test uses when it runs in a guest of the lab: which
// boot this is, where the drives are, and requests to the host, which can pull
// a drive out or cut the power.
//
// It depends on the kernel alone and never on the code under test.
package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/lab/internal/control"
	"github.com/culvert-io/culvert/lab/internal/job"
)

// Boot is 0 outside of a guest, 1 in a fresh one, and one more after each
// power cut.
func Boot() int {
	n, _ := strconv.Atoi(os.Getenv(job.BootEnv))
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

// Wanted is a fact about the guest that its suite states in the environment.
// Without it the test is skipped: it runs on another guest.
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

// Disk is the block device of the drive with the given id, such as
// /dev/nvme0n1.
func Disk(id string) (string, error) {
	ctrl, err := controller(id)
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(ctrl)
	if err != nil {
		return "", fmt.Errorf("drive %s: %w", id, err)
	}
	for _, e := range entries {
		if namespaceName.MatchString(e.Name()) {
			return "/dev/" + e.Name(), nil
		}
	}
	return "", fmt.Errorf("drive %s: %s has no namespace yet: %w", id, ctrl, os.ErrNotExist)
}

// PCI is the sysfs directory of the PCI function behind a drive.
func PCI(id string) (string, error) {
	ctrl, err := controller(id)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(filepath.Join(ctrl, "device"))
}

// Dir is where the drive with the given id is mounted, when the guest's
// description gives it a file system.
func Dir(id string) string { return filepath.Join(job.MountRoot, id) }

func controller(id string) (string, error) {
	serials, err := filepath.Glob("/sys/class/nvme/*/serial")
	if err != nil {
		return "", err
	}
	for _, s := range serials {
		if b, err := os.ReadFile(s); err == nil && strings.TrimSpace(string(b)) == id {
			return filepath.Dir(s), nil
		}
	}
	return "", fmt.Errorf("no NVMe drive with serial number %q: %w", id, os.ErrNotExist)
}

// Unplug asks the host to remove a drive from its slot, and returns when the
// slot is empty: after the kernel has let go of the drive.
func Unplug(id string) error { return control.Ask(control.Unplug, id) }

// PowerCut ends this guest between two instructions and starts it again with
// the same drives. The same command runs again, with a higher Boot. PowerCut
// returns only on failure.
func PowerCut() error {
	if err := control.Ask(control.PowerCut); err != nil {
		return err
	}
	return errors.New("powercut: the guest still runs")
}
