// Package dev is the seam between Culvert and an operating system: device
// nodes that are opened, ioctl'ed and mapped, and the files under /proc and
// /sys that describe them.
//
// A client of a kernel module is written against [OS] alone. [Host] is the
// machine the process runs on; package soft/kernel is one made of software,
// and a captured tree in a test is a third. The client issues the same bytes
// to all of them.
package dev
