// Package culvert is the root of the module; it holds no code. What a program
// imports: machine (the hardware, or the software one), cufile (files and GPU
// memory), gpu (the GPU itself), route (the ways between them and the receipts),
// tensor (weights and checkpoints). docs/architecture.md has the map.
package culvert
