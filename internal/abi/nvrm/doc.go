// Package nvrm mirrors the part of the NVIDIA kernel driver's interface that a
// process needs to be a client of the resource manager (RM): to allocate a
// client and a device, to take over memory that another client owns, and to
// map it through BAR1.
//
// Constants carry NVIDIA's names; types say in their comment which C type they
// are. All numbers and layouts are those of the public headers of the open
// kernel modules. [FamilyOf] says for which releases they hold.
//
// Every ioctl goes to /dev/nvidiactl. It succeeds as a system call even when
// the resource manager refuses: the answer is the Status field.
package nvrm
