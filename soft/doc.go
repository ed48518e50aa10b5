// Package soft is the software machine: GPUs, drives, a PCIe fabric and the
// kernel modules between them, in one process and without privileges. It moves
// real bytes through real queues; what it does not do is run at the speed of the
// hardware, and nothing it measures is ever presented as a hardware figure.
package soft
