// Package culvert is the root of the module and has only its version. Programs
// import machine (the real or the software machine), cufile (transfers between
// files and GPU memory), gpu (GPUs and their memory), route (routes and receipts)
// and tensor (model weights and checkpoints). docs/architecture.md is the package
// map.
package culvert
