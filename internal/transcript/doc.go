// Package transcript reads recorded conversations with kernel modules and holds
// them against whatever claims to be such a module.
//
// A conversation is a list of system calls with their answers, byte for byte: a
// client must send these bytes, a software twin must give these answers. The
// format is that of the files in testdata, one JSON object on a line; README.md
// there explains it. Where a twin is safer than the module on purpose, a [Judge]
// says so, with the reason.
package transcript
