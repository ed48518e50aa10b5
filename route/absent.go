package route

import (
	"io/fs"

	"github.com/culvert-io/culvert/internal/dev"
)

// absent looks for what the direct routes stand on and says what is missing.
func absent(os dev.OS) []*Decline {
	return []*Decline{lookNVFS(os)}
}

func lookNVFS(os dev.OS) *Decline {
	const version = "proc/driver/nvidia-fs/version"
	if _, err := fs.Stat(os.FS(), version); err != nil {
		return &Decline{NVFS, "kernel module", "nvidia-fs is not loaded: no /" + version, "install nvidia-fs and run: modprobe nvidia-fs"}
	}
	return &Decline{NVFS, "client", "nvidia-fs is loaded, but raw ioctls to it are not used by this version", "use NVIDIA's libcufile"}
}
