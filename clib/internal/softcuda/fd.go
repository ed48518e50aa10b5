package softcuda

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// release hands a file's descriptor to C, which will close it.
func release(f *os.File) (int, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, gpu.ErrOperatingSystem
	}
	return fd, nil
}
