package culvert

// Version is the version of the module, its command, its C libraries and its
// Python package. Build metadata (commit, Go version) is in culvert version.
const Version = "0.1.0"
