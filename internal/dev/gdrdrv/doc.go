// Package gdrdrv is a client of GDRCopy's kernel module: it pins GPU memory and
// maps it into the process. Package gdrcopy makes GDRCopy's interface of it.
//
// The module has corners that harm whoever steps into them. The client keeps
// away: it never sends a handle that it has given back (the module would take
// another pin for it), never maps a pin a second time (the module would forget
// the first mapping), and unmaps before it unpins.
package gdrdrv
