// Package dev is the operating-system seam: device nodes, and the files in /proc and
// /sys that describe them.
//
// A client of a kernel module uses an [OS] only: [Host], which is this computer,
// package soft/kernel, which emulates one, or a captured tree in a test. It issues
// the same requests to all of them.
package dev
