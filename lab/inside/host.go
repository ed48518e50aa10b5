package inside

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/culvert-io/culvert/lab/internal/job"
)

// OpenPort opens the virtio serial port with the given name.
func OpenPort(name string, flag int) (*os.File, error) {
	dir, err := find("/sys/class/virtio-ports/*/name", name)
	if err != nil {
		return nil, err
	}
	return os.OpenFile("/dev/"+filepath.Base(dir), flag, 0)
}

// asking serializes requests: one process at a time can open a port.
var asking sync.Mutex

// Ask sends a request to the host, one of those in package job, and waits for the
// answer.
func Ask(verb string, args ...any) error {
	request := strings.TrimSuffix(fmt.Sprintln(append([]any{verb}, args...)...), "\n")
	asking.Lock()
	defer asking.Unlock()
	f, err := OpenPort(job.PortControl, os.O_RDWR)
	if err != nil {
		return fmt.Errorf("%s: %w", request, err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, request); err != nil {
		return fmt.Errorf("%s: %w", request, err)
	}
	answer, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s: read the host's answer: %w", request, err)
	}
	if answer = strings.TrimSpace(answer); answer != job.OK {
		return fmt.Errorf("%s: host: %s", request, answer)
	}
	return nil
}
