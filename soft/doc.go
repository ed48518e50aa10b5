// Package soft is the software machine: GPUs, drives, a PCIe fabric and emulated
// kernel modules, in one process and without privileges. It moves real bytes through
// real queues, but not at the speed of hardware: nothing that it measures is reported
// as a hardware result.
package soft
