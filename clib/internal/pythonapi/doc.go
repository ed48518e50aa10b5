// Package pythonapi answers the Python package: it opens models, plans and loads
// them, saves tensors and attaches to served models.
//
// A request is a JSON object whose "op" names the operation, the answer is another;
// see [API.Call]. Objects that outlive a call (an open model, a plan, loaded tensors)
// are handles, which the caller releases. Bytes are never JSON: a request names host
// memory by its address, and GPU memory by a handle and the tensor's number.
//
// This is an interface between two halves of one release, not a public one: both
// sides have [ABI], and a difference is an error when the library is loaded.
package pythonapi
