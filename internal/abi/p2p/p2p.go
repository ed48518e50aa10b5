// Package p2p has the numbers of nvidia-p2p, the interface by which kernel
// modules pin GPU memory (nv-p2p.h).
package p2p

import "syscall"

// NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING is a flag of the persistent calls.
const NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING = 1

// ENOTSUPP is an errno internal to the kernel, which nvidia-p2p returns anyway.
const ENOTSUPP = syscall.Errno(524)
