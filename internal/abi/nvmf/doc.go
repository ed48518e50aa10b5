// Package nvmf mirrors the parts of the NVM Express over Fabrics specification,
// version 1.1, that hosts and controllers share: Fabrics commands, keyed SGL
// descriptors, and the private data of RDMA connections. Names are the
// specification's; layouts are those of Linux's nvme.h and nvme-rdma.h.
//
// All integers are little endian.
package nvmf
