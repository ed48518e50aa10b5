// Package nvrm mirrors the interface between a process and NVIDIA's resource
// manager (RM): allocate a client and a device, import memory of another client,
// map it through BAR1. The client is internal/rm, the emulation
// soft/kernel/nvrm.
//
// Constants have NVIDIA's names; the comment of a type names its C type. Numbers
// and layouts are those of the public headers of the open kernel modules, for
// the releases that [FamilyOf] accepts.
//
// Every ioctl goes to /dev/nvidiactl. It succeeds as a system call even if the
// resource manager rejects it: the result is the Status field.
package nvrm
