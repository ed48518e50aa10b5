// Package culvert is the root of the module; it has only the version. Programs import
// machine (the real or the software machine), cufile (files and GPU memory), gpu (the
// GPU), route (routes and receipts) and tensor (weights and checkpoints).
// docs/architecture.md has the package map.
package culvert
