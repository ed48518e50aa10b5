package nvme

import (
	"syscall"

	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// RDMA is the storage module nvme_rdma: drives behind a network. It registers with
// nvidia-fs and serves no file: the software machine has no network adapter to
// reach such a drive by.
type RDMA struct{}

var (
	_ nvfs.Storage     = RDMA{}
	_ nvfs.Registrar   = RDMA{}
	_ nvfs.Unregistrar = RDMA{}
)

// Name is the module's.
func (RDMA) Name() string { return "nvme_rdma" }

// Version is the module's.
func (RDMA) Version() string { return "1.0" }

// Register takes the table, which it has no use for.
func (RDMA) Register(*nvfs.Ops) error { return nil }

// Unregister gives it back.
func (RDMA) Unregister() {}

// Serves says no.
func (RDMA) Serves(int) bool { return false }

// Submit has no drive to give a request to.
func (RDMA) Submit(*nvfs.Request) error { return syscall.ENODEV }
