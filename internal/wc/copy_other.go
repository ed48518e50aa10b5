//go:build !amd64

package wc

import "encoding/binary"

func store(dst, src []byte)      { copy(dst, src) }
func load(dst, src []byte)       { copy(dst, src) }
func loadWord(src []byte) uint64 { return binary.LittleEndian.Uint64(src) }
func loadBarrier()               {}
