//go:build !amd64

package wc

func store(dst, src []byte) { copy(dst, src) }
func load(dst, src []byte)  { copy(dst, src) }
func loadBarrier()          {}
