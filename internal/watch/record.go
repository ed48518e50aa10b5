// Package watch reports what a program did through cuFile. The libcufile of "culvert
// run --report" keeps a record per process in a directory of the run (clib/shim/record.h),
// which outlives the process. This package reads the records, adds what the statistics of
// Culvert's own library know of routes, and makes the report.
package watch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// The layout of a record, as in clib/shim/record.h.
const (
	fileSlots  = 128
	sizeSlots  = 40
	timeSlots  = 256
	codeSlots  = 16
	failSlots  = 128
	recordSize = 12288 + fileSlots*8192
	version    = 1
)

var magic = [8]byte{'c', 'u', 'l', 'v', 'r', 'e', 'c', '1'}

type rawDirection struct {
	Calls, Bytes, Failed, Cut, Nanos, Async int64
	Sizes                                   [sizeSlots]int64
	Times                                   [timeSlots]int64
}

type rawCode struct {
	Code  int32
	_     int32
	Count int64
}

type rawFile struct {
	Used, Direct uint32
	Path         [1016]byte
	Dir          [2]rawDirection
	Codes        [codeSlots]rawCode
	Asked        [2]int64
	_            [2064]byte
}

type rawFailure struct {
	Function    [48]byte
	Code, Ready int32
	Count       int64
}

type rawRecord struct {
	Magic          [8]byte
	Version, Slots uint32
	PID, Calls     int64
	Command        [512]byte
	Failures       [failSlots]rawFailure
	_              [12288 - 544 - failSlots*64]byte
	Files          [fileSlots]rawFile
}

// records reads the records in a directory. One that a process has only begun to make
// is left out: the process has called nothing yet.
func records(dir string) ([]*rawRecord, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.record"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var list []*rawRecord
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		r, err := decode(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if r != nil {
			list = append(list, r)
		}
	}
	return list, nil
}

func decode(data []byte) (*rawRecord, error) {
	if len(data) < len(magic) || [8]byte(data) == [8]byte{} {
		return nil, nil
	}
	if [8]byte(data) != magic || len(data) != recordSize {
		return nil, fmt.Errorf("not a record of a process (%d bytes)", len(data))
	}
	r := new(rawRecord)
	if err := binary.Read(bytes.NewReader(data), binary.LittleEndian, r); err != nil {
		return nil, err
	}
	if r.Version != version {
		return nil, fmt.Errorf("a record of version %d, want %d: libraries and command must come from one build", r.Version, version)
	}
	return r, nil
}

// text is what comes before the first NUL.
func text(b []byte) string { return unix.ByteSliceToString(b) }
