package tcp

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
)

// accessible returns EFAULT unless the CPU may read, and write if that is asked for, all
// of a range. Addresses of a GPU are often reserved, so that asking whether the range is
// mapped is not enough.
func accessible(addr, n uint64, write bool) error {
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
