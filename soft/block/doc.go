// Package block keeps the bytes of an emulated drive in a file or in memory.
//
// Byte n of the file is byte n of the drive, so block l of 512 bytes is at offset
// 512*l. The end of the file is the drive's end, and holes are blocks that were never
// written. A read goes from the file directly into the caller's segments, without a
// copy.
package block
