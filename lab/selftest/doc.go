// Package selftest holds the tests of the lab itself: that a guest's drives,
// file systems, faults and topology behave as the project's own suites rely
// on. They use the kernel alone and none of the project's code, so a failure
// here is about the bench and not about what is tested on it.
//
// Each test needs the guest of its suite (package suite) and skips elsewhere.
package selftest
