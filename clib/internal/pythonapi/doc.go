// Package pythonapi is what the core answers to the Python package: it opens
// models, plans and loads them, saves tensors and attaches to held models.
//
// A request is a JSON object whose "op" names what is wanted, an answer is
// another; [API.Call] has the list. Objects that outlive a call (an open model,
// a plan, loaded tensors) are handles, which the caller releases. Bytes never
// travel as JSON: a request names host memory by its address, and what lies on a
// GPU is named by a handle and the tensor's number.
//
// This is an interface between two halves of one release, not a public one: both
// sides carry [ABI], and a difference is refused when the library is loaded.
package pythonapi
