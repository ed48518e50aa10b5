// Package nvme mirrors the parts of the NVM Express base specification, version
// 1.4, that drivers and controllers share: registers, queue entries, data
// structures and numbers. Names are the specification's.
//
// All integers are little endian, so on a little-endian machine the structs can
// be laid over memory.
package nvme
