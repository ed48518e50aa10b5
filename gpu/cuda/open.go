package cuda

import (
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dl"
	"github.com/culvert-io/culvert/internal/env"
)

var (
	// ErrNoLibrary means that no libcuda could be loaded.
	ErrNoLibrary = errors.New("NVIDIA's driver library is not installed")
	// ErrOwnLibrary means that the libcuda found is Culvert's software one.
	ErrOwnLibrary = errors.New("this libcuda is Culvert's software GPU, not NVIDIA's driver")
	// ErrOldDriver means that libcuda lacks a function that Culvert needs.
	ErrOldDriver = errors.New("NVIDIA's driver is too old")
)

// EnvLibrary is the environment variable that names the library to load.
const EnvLibrary = "CULVERT_LIBCUDA"

// ownMarker is exported by Culvert's own libraries.
const ownMarker = "culvert_soft_machine"

// libraryNames are the names to try: the loader's search path, then paths that
// container runtimes and WSL use without configuring the loader.
func libraryNames() []string {
	if name := env.Get(EnvLibrary); name != "" {
		return []string{name}
	}
	return []string{
		"libcuda.so.1",
		"/usr/local/nvidia/lib64/libcuda.so.1",
		"/usr/lib/wsl/lib/libcuda.so.1",
		"libcuda.so",
	}
}

// Open loads the driver library and initializes it. It fails with an error
// that wraps [ErrNoLibrary], [ErrOwnLibrary], [ErrOldDriver] or the gpu.Code
// of the driver (gpu.ErrNoDevice where there is a driver but no GPU).
func Open() (*Driver, error) {
	lib, err := dl.Open(libraryNames()...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w (fix: install the NVIDIA driver, start the container with --gpus all, or set %s to the path of the library)",
			ErrNoLibrary, err, EnvLibrary)
	}
	if lib.Has(ownMarker) {
		path := lib.Path()
		_ = lib.Close() // the library is rejected either way
		return nil, fmt.Errorf("%s: %w (fix: put NVIDIA's library first in the loader's path, or set %s to its path)", path, ErrOwnLibrary, EnvLibrary)
	}
	d := &Driver{path: lib.Path()}
	if err := d.symbols.resolve(lib); err != nil {
		return nil, d.tooOld(err)
	}
	if err := d.init(); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Driver) tooOld(err error) error {
	of := ""
	if d.symbols.cuDriverGetVersion.fn != 0 {
		of = " (CUDA " + versionText(d.Version()) + ")"
	}
	return fmt.Errorf("%w: %s%s: %w (fix: install NVIDIA driver 470 or newer)", ErrOldDriver, d.path, of, err)
}

func (d *Driver) init() error {
	s := &d.symbols.cuInit
	if c := s.call(0); c != gpu.Success {
		return fmt.Errorf("%s: %w", d.path, d.fail(s, c, initHints[c], 0))
	}
	n, err := d.count()
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	if n == 0 {
		return fmt.Errorf("%s: %w", d.path, d.fail(&d.symbols.cuDeviceGetCount, gpu.ErrNoDevice, initHints[gpu.ErrNoDevice]))
	}
	return nil
}

// initHints are fixes for a driver that does not start.
var initHints = map[gpu.Code]string{
	gpu.ErrNoDevice:             "check nvidia-smi, /dev/nvidia0 and CUDA_VISIBLE_DEVICES; a container needs --gpus",
	gpu.ErrStubLibrary:          "this is the CUDA toolkit's stub library: remove its stubs directory from LD_LIBRARY_PATH",
	gpu.ErrSystemDriverMismatch: "library and kernel module are different releases: reboot, or reload the nvidia modules",
	gpu.ErrSystemNotReady:       "start nvidia-fabricmanager and wait for it",
	gpu.ErrUnknown:              "load nvidia-uvm (nvidia-modprobe -u -c 0) and check the permissions of /dev/nvidia-uvm",
	gpu.ErrOperatingSystem:      "check the permissions of /dev/nvidia*",
}
