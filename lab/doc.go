// Package lab boots a real Linux kernel under QEMU and runs a program in it,
// usually a compiled Go test: real NVMe drives, real file systems with direct
// I/O, real peer-to-peer DMA and real faults, without privileges and without
// touching the host.
//
// A [Guest] describes a machine as data. [Open] finds a kernel; [Lab.Run] packs an
// initial root file system, starts the guest, passes its output on and returns the
// program's exit code. A test in the guest uses package inside to find its drives,
// to unplug one, or to cut the power and continue after the next boot.
//
// The command lab/cmd/lab is for go test -exec.
//
// # Environment
//
// CULVERT_LAB_KERNEL names a kernel to boot: an ELF vmlinux, or one compressed
// as vmlinux*.xz, with everything built in. Without it the kernel that
// "make lab-kernel" built is used, and without that Debian's newest, which has
// no peer-to-peer DMA.
package lab
