// Package replay checks the emulated kernel modules gdrdrv and gpumem, and the
// clients of the real ones, against recordings of the modules (see package
// transcript). It has only tests.
//
// To replay another file: go test ./internal/transcript/replay -args -transcript=FILE
package replay
