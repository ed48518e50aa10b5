package soft

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/soft/block"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmerdma"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// A Config describes a software machine. The zero value is a machine with one
// H200.
type Config struct {
	GPUs    int    // 0 means 1
	Model   string // "h200", "small-bar", "pageable"; "" means h200
	Memory  uint64 // of each GPU; 0 means the model's
	Scatter bool   // allocations get frames that are not adjacent
	Heap    bool   // device memory on the Go heap, for the race detector
	Seed    uint64
	Peer    string // PCI device whose memory the GPU uses: see soft/gpu's Config
	Zero    bool   // fresh device memory is zero, not poisoned; ParseConfig sets it
	// Shared is the path of a file by which processes share the memory of the GPUs: see
	// soft/gpu's Config. Package machine sets it from CULVERT_SHARED.
	Shared string

	BAR1     uint64 // of each GPU; 0 means the model's
	IOMMU    pcie.IOMMU
	Isolated bool     // the host bridge forwards nothing between root ports
	Drives   []Drive  // NVMe drives for user-space drivers
	NICs     []NIC    // network adapters; nil means one below the switch of GPU 0
	Without  []string // emulated kernel modules that are not loaded, of [Modules]
	// Callback makes gdrdrv, nvidia-fs and nvidia-peermem pin with free callbacks, so that freeing
	// memory revokes their pins. Otherwise pins outlive the free.
	Callback bool
	// ForceBAR1 lets a pin require BAR1, as on platforms whose processor reaches GPU
	// memory by a faster path.
	ForceBAR1 bool
	Points    *syncpoint.Points // passed by fabric (pcie.acquired, pcie.release), pins and modules, not by drives; may be nil
	// Stack lists layers between files and the drive under nvidia-fs, from the file down:
	// "crypt+raid1" (see soft/block's Layer). /sys shows them, unless the text begins with
	// "hidden:".
	Stack string
	// Drive is where the drive under nvidia-fs is: "nvme" or "" means below the switch of
	// the first GPU, "nvme-rdma" on another host, which the first network adapter reaches.
	Drive string
	// Fabrics speaks NVMe over Fabrics, for a remote drive. Package machine sets it: this
	// package imports no client of verbs.
	Fabrics nvmerdma.Fabrics
	// Liar, if not nil, has all drives lie: those of Drives and the one under nvidia-fs.
	Liar *nvme.Liar
	// Fail, if not nil, is called for each allocation of nvidia_p2p and can make it
	// fail.
	Fail func(site string) bool
}

var models = map[string]func() softgpu.Model{
	"h200":      softgpu.H200,
	"small-bar": softgpu.SmallBAR,
	"pageable":  softgpu.Pageable,
}

// ParseConfig parses the format of CULVERT_SOFT:
// "gpus=2,model=small-bar,memory=1G,scatter,heap,seed=7,poison=1". For lie see
// [nvme.ParseLiar]; "without=gdrdrv+nvidia-fs" leaves modules out. Fresh device memory is zero, as on hardware, unless poison is set.
func ParseConfig(text string) (Config, error) {
	c := Config{Zero: true}
	for _, item := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		key, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		if err := c.set(key, value); err != nil {
			return Config{}, fmt.Errorf("software machine %q: %s: %w", text, item, err)
		}
	}
	if c.Liar != nil {
		c.Liar.Seed = c.Seed
	}
	return c, nil
}

func (c *Config) set(key, value string) (err error) {
	switch key {
	case "gpus":
		c.GPUs, err = strconv.Atoi(value)
		if err != nil || c.GPUs < 1 || c.GPUs > 16 {
			err = errors.New("must be 1 to 16")
		}
	case "model":
		if _, ok := models[value]; !ok {
			return errors.New("unknown model (models: h200, small-bar, pageable)")
		}
		c.Model = value
	case "memory":
		var n int64
		n, err = human.ParseSize(value)
		if n > 1<<50 {
			err = errors.New("too large")
		}
		c.Memory = uint64(n)
	case "scatter":
		c.Scatter, err = parseBool(value)
	case "heap":
		c.Heap, err = parseBool(value)
	case "poison":
		var on bool
		on, err = parseBool(value)
		c.Zero = !on
	case "callback":
		c.Callback, err = parseBool(value)
	case "seed":
		if c.Seed, err = strconv.ParseUint(value, 0, 64); err != nil {
			err = errors.New("must be a number of 64 bits")
		}
	case "stack":
		c.Stack = value
		_, _, err = c.layers()
	case "drive":
		c.Drive = value
		if value != "nvme" && value != remoteDrive {
			err = errors.New("unknown drive (drives: nvme, nvme-rdma)")
		}
	case "lie":
		c.Liar, err = nvme.ParseLiar(value, 0)
	case "peer":
		c.Peer = value
	case "without":
		c.Without = strings.Split(value, "+")
		err = c.checkModules()
	case "nics":
		c.NICs, err = parseNICs(value)
	default:
		err = errors.New("unknown key (keys: gpus, model, memory, scatter, heap, poison, callback, seed, peer, stack, drive, lie, nics, without)")
	}
	return err
}

// checkModules finds names in Without that are none of a module.
func (c *Config) checkModules() error {
	for _, name := range c.Without {
		if !slices.Contains(Modules(), name) {
			return fmt.Errorf("unknown kernel module %q (modules: %q)", name, Modules())
		}
	}
	return nil
}

// layers parses Stack.
func (c *Config) layers() (list []block.Layer, hidden bool, err error) {
	text, hidden := strings.CutPrefix(c.Stack, "hidden:")
	list, err = block.ParseLayers(text)
	return list, hidden, err
}

// parseBool returns true for a key without value.
func parseBool(value string) (bool, error) {
	if value == "" {
		return true, nil
	}
	on, err := strconv.ParseBool(value)
	if err != nil {
		return false, errors.New("must be 0 or 1")
	}
	return on, nil
}

func (c Config) gpu() softgpu.Config {
	model := models["h200"]
	if c.Model != "" {
		model = models[c.Model]
	}
	m := model()
	if c.Memory != 0 {
		m.Memory = c.Memory
	}
	if c.BAR1 != 0 {
		m.BAR1 = c.BAR1
	}
	g := softgpu.Config{
		Models:  slices.Repeat([]softgpu.Model{m}, max(c.GPUs, 1)),
		Scatter: c.Scatter,
		Seed:    c.Seed,
		Peer:    c.Peer,
		Zero:    c.Zero,
		Shared:  c.Shared,
	}
	if c.Heap {
		g.Backing = softgpu.Heap
	}
	return g
}
