// Package libnvm is a client of ssd-gpu-dma's kernel module. It maps memory for an
// NVMe controller that is bound to the module, and the controller's registers.
//
// The module keeps maps by thread and address, and rounds addresses to find them. So
// one thread makes all requests of a [Device], and maps that the module could confuse
// are refused.
package libnvm
