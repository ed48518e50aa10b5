// Package hold keeps a loaded model in GPU memory and hands it to other
// processes, so that a program that starts again, or a second one, has its
// weights at once instead of reading them.
//
// The holder listens on a Unix socket that only its user may open. A client that
// connects gets a list of tensors and a descriptor for each allocation that they
// lie in; it maps the allocations and has the tensors without a copy. The driver
// counts who maps an allocation: it outlives the holder while a client uses it.
//
// # Protocol
//
// A message is its length, 4 bytes little-endian, and so many bytes of JSON. The
// client begins:
//
//	{"protocol": "culvert-hold", "version": 1}
//
// and the server answers with two messages and closes the connection. The first
// says where the memory is:
//
//	{"protocol": "culvert-hold", "version": 1, "model": "/data/llama", "share": "descriptor",
//	 "metadata": {"format": "pt"},
//	 "buffers": [{"gpu": "GPU-6f…", "bytes": 8589934592}]}
//
// or it has an "error", and is the only one. The descriptors travel with the four
// bytes of its length as SCM_RIGHTS, one for each buffer, in the same order. A GPU
// is named by its UUID because its number differs between processes
// (CUDA_VISIBLE_DEVICES). The second, which is read while the memory is mapped,
// says what lies there:
//
//	[{"name": "lm_head.weight", "dtype": "BF16", "shape": [32000, 4096],
//	  "buffer": 0, "offset": 0, "bytes": 262144000}, …]
//
// "share" says what the descriptors are. "descriptor": of virtual memory, for
// cuMemImportFromShareableHandle; writes of one process are seen by all. "copy":
// of a file in memory that holds the bytes, which the client copies into memory
// of its own. The software machine shares by copy, because its GPU memory
// belongs to one process.
package hold
