// Package block keeps the bytes of a software drive: in a file of this machine,
// or in memory.
//
// A file is adopted as it is. Byte n of the file is byte n of the drive, so
// block l of 512 bytes lies at offset 512*l; its end is the drive's end, holes
// are blocks that were never written, and a read goes from the file straight
// into the segments that the caller was lent, without a copy in between.
package block
