// Package gdrdrv is a client of GDRCopy's kernel module. It pins GPU memory and maps
// it into the process; package gdrcopy is the API.
//
// The client avoids known faults of the module. It never sends a handle that it has
// unpinned (the module would use another pin), never maps a pin twice (the module
// would forget the first mapping), and unmaps before it unpins.
package gdrdrv
