// Package datapath holds the tests of the project's own code that need a real
// kernel: what cuFile reads and writes do when the drive below has a bad
// sector, is pulled out or is full, and what a power cut leaves of a copy or a
// saved model. The GPU is the software machine's; everything below the system
// calls is real.
//
// Each test needs the guest of its suite (package suite) and skips elsewhere.
package datapath
