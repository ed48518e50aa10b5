package main

import "strings"

// goTypes are the C types of parameters by the Go expression that converts a word,
// "%s". Pointers, which are cmem.Ptr, are not in it.
var goTypes = invert(map[string]string{
	"%s != 0":    "bool",
	"int8(%s)":   "char",
	"uint8(%s)":  "unsigned char",
	"uint16(%s)": "unsigned short",
	"uint32(%s)": "unsigned, unsigned int, cuuint32_t, uint32_t",
	"%s":         "size_t, cuuint64_t, unsigned long long, unsigned long, uint64_t",
	"int64(%s)":  "off_t",
	"int32(%s)": "int, CUdevice, CUdevice_attribute, CUlimit, CUfunction_attribute, CUpointer_attribute, CUmem_advise, " +
		"CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemRangeHandleType, CUflushGPUDirectRDMAWritesTarget, CUflushGPUDirectRDMAWritesScope, " +
		"CUmemLocation, struct cudaMemLocation, enum cudaDeviceAttr, enum cudaLimit, enum cudaMemoryAdvise, enum cudaMemcpyKind, " +
		"enum cudaFlushGPUDirectRDMAWritesTarget, enum cudaFlushGPUDirectRDMAWritesScope, CUfileDriverStatusFlags_t, CUfileP2PFlags_t, " +
		"CUFileSizeTConfigParameter_t, CUFileBoolConfigParameter_t, CUFileStringConfigParameter_t, gdr_attr_t",
	"gpu.Addr(%s)": "CUdeviceptr",
	"handle.ID(%s)": "CUcontext, CUstream, CUevent, CUmodule, CUfunction, cudaStream_t, cudaEvent_t, CUfileHandle_t, CUfileBatchHandle_t, " +
		"CUmemGenericAllocationHandle, CUlogsCallbackHandle, cudaLogsCallbackHandle, culvert_id, gdr_t, gdr_mh_t",
	"cmem.Ptr(%s)": "CUhostFn, CUstreamCallback, cudaHostFn_t, cudaStreamCallback_t, CUlogsCallback, cudaLogsCallback_t, CUipcMemHandle, cudaIpcMemHandle_t, " +
		"CUipcEventHandle, cudaIpcEventHandle_t",
})

// needs are what handles and numbers of these types name.
var needs = map[string]need{
	"CUdevice": "Device", "CUstream": "Stream", "CUevent": "Event", "cudaStream_t": "Stream", "cudaEvent_t": "Event",
}

// members are those of structs that are passed by value, one word each. An array is sent as
// the address of the caller's copy.
var members = map[string][]string{
	"CUmemLocation": {"type", "id"}, "struct cudaMemLocation": {"type", "id"}, "gdr_mh_t": {"h"},
	"CUipcMemHandle": {"reserved"}, "cudaIpcMemHandle_t": {"reserved"},
	"CUipcEventHandle": {"reserved"}, "cudaIpcEventHandle_t": {"reserved"},
}

func invert(lists map[string]string) map[string]string {
	types := map[string]string{}
	for conv, list := range lists {
		for _, t := range strings.Split(list, ", ") {
			types[t] = conv
		}
	}
	return types
}

// words are the C expressions that a parameter is sent as.
func (p param) words() []string {
	list := members[p.ctype]
	if list == nil {
		return []string{p.name}
	}
	var w []string
	for _, m := range list {
		w = append(w, p.name+"."+m)
	}
	return w
}

// conv is the Go expression that converts a word.
func (p param) conv() string {
	switch {
	case p.address:
		return "gpu.Addr(%s)"
	case p.pointer():
		return "cmem.Ptr(%s)"
	}
	return goTypes[p.ctype]
}
