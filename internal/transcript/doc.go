// Package transcript replays recorded kernel-module calls. A client must send
// the recorded requests, an emulated module must give the recorded answers. A
// [Judge] lists intended differences.
//
// A conversation is a list of system calls with their answers, byte for byte.
// The files in testdata have one JSON object per line; README.md there
// describes the format.
package transcript
