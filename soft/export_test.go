package soft

import "github.com/culvert-io/culvert/soft/nvme"

// StorageStats returns the counters of the drive under nvidia-fs.
func (m *Machine) StorageStats() nvme.Stats { return m.storage.Stats() }
