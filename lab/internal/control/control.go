// Package control is the guest's end of the channel to the host: one line as
// a request, one line as the answer.
package control

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/culvert-io/culvert/lab/internal/job"
)

// The requests, each followed by its arguments after blanks.
const (
	Unplug   = "unplug"   // a drive's id: remove it from its slot
	PowerCut = "powercut" // kill the guest and boot it again
	Drain    = "drain"    // numbers of bytes: answer when so many have come out of stdout and stderr
)

// OK is the answer to a request that was carried out; any other is the reason
// why not.
const OK = "ok"

// Port is the device node of the virtio serial port with the given name.
func Port(name string) (string, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return "", err
	}
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil && strings.TrimSpace(string(b)) == name {
			return "/dev/" + filepath.Base(filepath.Dir(n)), nil
		}
	}
	return "", fmt.Errorf("no virtio serial port named %q: %w", name, os.ErrNotExist)
}

// mu serialises requests: a port has one opener at a time.
var mu sync.Mutex

// Ask makes a request and waits for the answer.
func Ask(verb string, args ...any) error {
	request := strings.TrimSuffix(fmt.Sprintln(append([]any{verb}, args...)...), "\n")
	mu.Lock()
	defer mu.Unlock()
	node, err := Port(job.PortControl)
	if err != nil {
		return fmt.Errorf("%s: %w", request, err)
	}
	f, err := os.OpenFile(node, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", request, err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, request); err != nil {
		return fmt.Errorf("%s: %w", request, err)
	}
	answer, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s: reading the host's answer: %w", request, err)
	}
	if answer = strings.TrimSpace(answer); answer != OK {
		return fmt.Errorf("%s: the host says: %s", request, answer)
	}
	return nil
}
