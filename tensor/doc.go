// Package tensor gets model weights into GPU memory and checkpoints out of it.
//
// Weights live in safetensors files: a JSON header that says where each tensor
// lies, then the bytes. Because the header is known before any byte is moved,
// everything can be decided first: [Open] parses a model strictly, [NewPlan]
// decides which ranges of which files go to which device addresses, [NewLoad]
// carries the plan out and hands the tensors over as they become ready. A plan
// reads only what was asked for, places each byte where it will stay, and
// prints as text, so that what will happen can be read before it does.
//
// [Save] writes the other way: a file whose data starts on a page border, so
// that it can be loaded directly, with a manifest of checksums beside it for
// [Verify]. A crash during Save leaves the old file or the new one, never a
// part of either. [Checkpoints] keeps a directory of such saves.
package tensor
