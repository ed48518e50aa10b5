// Package nvme mirrors the parts of the NVM Express base specification, as of
// version 1.4, that a driver and a controller need of each other: registers,
// queue entries, data structures and numbers. Names are the specification's.
//
// All integers are little endian, as on the wire, so the structs are what a
// little-endian machine has in memory.
package nvme
