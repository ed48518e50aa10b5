// Package libnvm is a client of ssd-gpu-dma's kernel module: it maps memory for
// an NVMe controller that is bound to the module, and the controller's
// registers.
//
// The module keeps maps by thread and address, and rounds addresses when it
// looks for them. So all requests of a [Device] are made on one thread, and a
// map that the module could take for another is refused here.
package libnvm
