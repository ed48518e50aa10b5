// Package fabrics is NVMe over Fabrics on package rdma: a host ([Connect]) and a target
// ([Target]) with the capsules, queues, keyed SGLs and status codes of NVMe over RDMA.
//
// A host sends commands; the target moves the data with one-sided work requests on the
// memory that a command's keyed SGL names, which the host has registered: host memory, or
// GPU memory if the device can register it. The CPU of the host touches no data.
//
// A host reaches Linux's target by the kernel's connection manager (Config.Addr, package
// rdma/cm), and Linux's host a target (Target.ServeManager). On devices that the kernel does not know, a stream connection replaces it, over
// which both ends exchange its private data and the addresses of their queue pairs; there
// is one for each queue, and it ends with the queue.
package fabrics
