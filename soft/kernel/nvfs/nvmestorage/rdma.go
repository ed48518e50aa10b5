package nvmestorage

import (
	"syscall"

	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// RDMA is the storage module nvme_rdma, for drives behind a network. It registers
// with nvidia-fs and serves no file: the software machine has no network adapter.
type RDMA struct{}

var (
	_ nvfs.Storage     = RDMA{}
	_ nvfs.Registrar   = RDMA{}
	_ nvfs.Unregistrar = RDMA{}
)

// Name returns the module's name.
func (RDMA) Name() string { return "nvme_rdma" }

// Version returns the module's version.
func (RDMA) Version() string { return "1.0" }

// Register ignores the table.
func (RDMA) Register(*nvfs.Ops) error { return nil }

// Unregister does nothing.
func (RDMA) Unregister() {}

// Serves returns false.
func (RDMA) Serves(int) bool { return false }

// Submit fails with ENODEV.
func (RDMA) Submit(*nvfs.Request) error { return syscall.ENODEV }
