// Package gdrapi is GDRCopy's library on package gdrcopy: what libgdrapi.so.2 asks of the
// Go core. A session uses gdrdrv for all GPUs, or without the module a BAR1 mapping of
// each GPU. As in GDRCopy, only memory that begins on a page of the pin can be mapped, and
// all of its pages are.
//
// Methods return errors with an errno. Layouts are those of include/gdrapi.h.
package gdrapi
