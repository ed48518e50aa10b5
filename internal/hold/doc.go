// Package hold shares a loaded model with other processes, so that a program that
// restarts, or a second one, has its weights without reading them.
//
// A server listens on a Unix socket that only its user may open, and answers processes
// of its user and of root (SO_PEERCRED), 256 at a time. A client checks in the same
// way whose process serves. It gets a
// list of tensors and a descriptor for each allocation that they are in. It maps the
// allocations and has the tensors without a copy. The driver counts the users of an
// allocation: it outlives the server while a client maps it.
//
// # Protocol
//
// A message is its length, 4 bytes little-endian, and that many bytes of JSON. The
// client begins:
//
//	{"protocol": "culvert-hold", "version": 1}
//
// The server answers with two messages and closes the connection. The first says
// where the memory is:
//
//	{"protocol": "culvert-hold", "version": 1, "model": "/data/llama", "share": "descriptor",
//	 "metadata": {"format": "pt"},
//	 "buffers": [{"gpu": "GPU-6f…", "bytes": 8589934592}]}
//
// Or it has an "error", and is the only one. SCM_RIGHTS with the four bytes of its
// length carry the descriptors, one per buffer, in the same order. A GPU is named by
// its UUID because its number differs between processes (CUDA_VISIBLE_DEVICES). The
// second message, which the client reads while it maps the memory, lists the tensors:
//
//	[{"name": "lm_head.weight", "dtype": "BF16", "shape": [32000, 4096],
//	  "buffer": 0, "offset": 0, "bytes": 262144000}, …]
//
// "share" says what the descriptors are. "descriptor": virtual memory, for
// cuMemImportFromShareableHandle; all processes see each other's writes. "copy": a
// sealed file in memory, one for all clients, which each client copies into memory of
// its own. Software GPUs share by descriptor with processes that share their memory
// (CULVERT_SHARED), and else by copy; the file takes as much host memory as the model, from
// the first client on.
package hold
