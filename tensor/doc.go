// Package tensor loads model weights into GPU memory and saves them from it.
//
// Weights are stored in safetensors files: a JSON header that says where each
// tensor is, then the bytes. [Open] reads and checks the headers of a model.
// [NewPlan] decides which ranges of which files go to which device addresses;
// each byte goes to its final address. [NewLoad] carries the plan out and yields
// tensors as they become ready.
//
// [Save] writes a file whose data starts on a page boundary, with a manifest of
// checksums beside it for [Verify]. A crash during Save leaves the old file or the
// new one. [Checkpoints] keeps a directory of such files.
package tensor
