package lab

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// Offsets in the x86 boot protocol's setup header, version 2.08 and later.
const (
	bzSetupSectors  = 0x1f1
	bzMagic         = 0x202 // "HdrS"
	bzVersion       = 0x206
	bzPayloadOffset = 0x248
	bzPayloadLength = 0x24c
	bzHeaderEnd     = 0x250
)

// extractVmlinux extracts the ELF kernel from a bzImage. QEMU starts an ELF kernel
// directly: decompression under emulation would be the largest part of a boot.
func extractVmlinux(bz []byte) ([]byte, error) {
	payload, err := bzPayload(bz)
	if err != nil {
		return nil, err
	}
	elf, err := decompress(payload)
	if err != nil {
		return nil, fmt.Errorf("kernel payload: %w", err)
	}
	if !bytes.HasPrefix(elf, []byte("\x7fELF")) {
		return nil, errors.New("kernel payload: not an ELF file")
	}
	return elf, nil
}

func bzPayload(bz []byte) ([]byte, error) {
	le := binary.LittleEndian
	if len(bz) < bzHeaderEnd || string(bz[bzMagic:bzMagic+4]) != "HdrS" {
		return nil, errors.New("not a bzImage: no setup header")
	}
	if v := le.Uint16(bz[bzVersion:]); v < 0x208 {
		return nil, fmt.Errorf("bzImage has boot protocol %#x, want at least 2.08", v)
	}
	sectors := cmp.Or(int64(bz[bzSetupSectors]), 4) // the protocol's default
	start := (sectors+1)*512 + int64(le.Uint32(bz[bzPayloadOffset:]))
	end := start + int64(le.Uint32(bz[bzPayloadLength:]))
	if end > int64(len(bz)) {
		return nil, fmt.Errorf("bzImage of %d bytes is truncated: its payload ends at %d", len(bz), end)
	}
	return bz[start:end], nil
}

// decompress recognizes the format by its first bytes. The kernel's build appends
// the unpacked size, which is not part of the stream.
func decompress(b []byte) ([]byte, error) {
	switch {
	case bytes.HasPrefix(b, []byte("\x1f\x8b")):
		zr, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		zr.Multistream(false)
		return io.ReadAll(zr)
	case bytes.HasPrefix(b, []byte("\xfd7zXZ\x00")):
		return filter(b, "xz", "--decompress", "--stdout", "--single-stream")
	case bytes.HasPrefix(b, []byte("\x28\xb5\x2f\xfd")):
		return filter(b[:max(0, len(b)-4)], "zstd", "--decompress", "--stdout")
	}
	return nil, fmt.Errorf("unknown compression, starting with % x (want gzip, xz or zstd)", b[:min(6, len(b))])
}

// filter runs a program of the host that decompresses its input.
func filter(in []byte, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
