package hostmem

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
)

// Accessible returns EFAULT unless the CPU may read, and write if that is asked for, all
// of a range. Addresses of a GPU are often reserved without rights, so that Mapped is not
// enough. It reads all mappings of the process: for registrations, not for transfers.
func Accessible(addr, n uint64, write bool) error {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer f.Close()
	at, end := addr, addr+n
	for s := bufio.NewScanner(f); s.Scan() && at < end; {
		var from, to uint64
		var rights string
		if _, err := fmt.Sscanf(s.Text(), "%x-%x %s", &from, &to, &rights); err != nil || to <= at {
			continue
		}
		if from > at || len(rights) < 2 || rights[0] != 'r' || write && rights[1] != 'w' {
			break
		}
		at = to
	}
	if at < end {
		return fmt.Errorf("the CPU cannot access address %#x: it is GPU memory, or not mapped: %w", at, syscall.EFAULT)
	}
	return nil
}
