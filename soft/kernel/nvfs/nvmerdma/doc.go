// Package nvmerdma emulates the Linux nvme_rdma module with nvidia-fs hooks: the driver of
// an NVMe drive on another host. A request is split into commands. For each, the module
// asks nvidia-fs what the pages stand for and maps GPU memory for the network adapter, or
// maps ordinary memory itself; it makes a memory region of the bus addresses, and the
// target moves the data by one-sided work requests on the region. No byte of a GPU page's
// data enters host memory of this machine.
//
// Target and connection are a session. A lost session is replaced by a new one, and what
// was in flight is sent again, a few times, as Linux does.
//
// How to speak NVMe over Fabrics is given by [Fabrics]: the emulated machine imports no
// client of verbs.
package nvmerdma
