package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// seedRandom feeds the kernel's random number generator with randomness of the
// host. A guest has none of its own for many seconds, and mkfs, which needs an
// identifier, would wait for it.
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
