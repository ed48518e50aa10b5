package main

/*
#include "core.h"
*/
import "C"

import (
	"encoding/json"
	"time"
	"unsafe"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/pythonapi"
)

// tensors answers the Python package, on the machine of the Go core.
var tensors = pythonapi.New(core.Machine)

// C and Go must agree on the version and on the size of a shape.
var (
	_ [C.CULVERT_TENSOR_ABI]byte  = [pythonapi.ABI]byte{}
	_ [C.CULVERT_TENSOR_DIMS]byte = [pythonapi.MaxDims]byte{}
)

//export culvertTensorCall
func culvertTensorCall(request unsafe.Pointer, n C.uint64_t, reply **C.char) C.bool {
	text, ok := tensors.Call(unsafe.Slice((*byte)(request), n))
	give(reply, text)
	return C.bool(ok)
}

//export culvertTensorBegin
func culvertTensorBegin(ticket C.uint64_t, request unsafe.Pointer, n C.uint64_t) {
	tensors.Begin(uint64(ticket), unsafe.Slice((*byte)(request), n))
}

//export culvertTensorWait
func culvertTensorWait(ticket, milliseconds C.uint64_t, reply **C.char) C.int64_t {
	text, ok, ready := tensors.Wait(uint64(ticket), time.Duration(milliseconds)*time.Millisecond)
	if !ready {
		return C.CULVERT_PENDING
	}
	give(reply, text)
	if !ok {
		return C.CULVERT_FAILED
	}
	return 0
}

//export culvertTensorCancel
func culvertTensorCancel(ticket C.uint64_t) { tensors.Cancel(uint64(ticket)) }

//export culvertTensorRelease
func culvertTensorRelease(object C.uint64_t) { tensors.Release(handle.ID(object)) }

//export culvertTensorCopy
func culvertTensorCopy(memory, index, off C.uint64_t, host unsafe.Pointer, n C.uint64_t, reply **C.char) C.bool {
	err := tensors.CopyOut(handle.ID(memory), int(index), uint64(off), cmem.Ptr(host), uint64(n))
	return refuse(err, reply)
}

//export culvertTensorRead
func culvertTensorRead(model, index, off C.uint64_t, host unsafe.Pointer, n C.uint64_t, reply **C.char) C.bool {
	err := tensors.ReadSegment(handle.ID(model), int(index), int64(off), cmem.Ptr(host), uint64(n))
	return refuse(err, reply)
}

//export culvertTensorViews
func culvertTensorViews(memory, first, n C.uint64_t, out *C.struct_culvert_view, reply **C.char) C.bool {
	views, err := tensors.Views(handle.ID(memory), int(first), int(n))
	if err != nil {
		return refuse(err, reply)
	}
	room := unsafe.Slice(out, len(views))
	for i := range room {
		v, to := &views[i], &room[i]
		to.address, to.gpu = C.uint64_t(v.Addr), C.int32_t(v.GPU)
		to.code, to.bits, to.ndim = C.uint8_t(v.Code), C.uint8_t(v.Bits), C.int32_t(len(v.Shape))
		for j, dim := range v.Shape {
			to.shape[j] = C.int64_t(dim)
		}
	}
	return true
}

// refuse returns true without an error, or false with the error as the reply.
func refuse(err error, reply **C.char) C.bool {
	if err == nil {
		return true
	}
	text, _ := json.Marshal(pythonapi.Explain(err)) // strings and numbers: cannot fail
	give(reply, text)
	return false
}

// give copies a text to C memory.
func give(reply **C.char, text []byte) { *reply = C.CString(string(text)) }
