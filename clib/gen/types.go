package main

// goTypes says what a C type is in Go. Pointers, which are cmem.Ptr, are not in
// it. A struct passed by value becomes its members, one word each.
var goTypes = map[string]goType{
	"bool":               {conv: "%s != 0"},
	"char":               {conv: "int8(%s)"},
	"unsigned char":      {conv: "uint8(%s)"},
	"unsigned short":     {conv: "uint16(%s)"},
	"int":                {conv: "int32(%s)"},
	"unsigned":           {conv: "uint32(%s)"},
	"unsigned int":       {conv: "uint32(%s)"},
	"cuuint32_t":         {conv: "uint32(%s)"},
	"size_t":             {conv: "%s"},
	"cuuint64_t":         {conv: "%s"},
	"unsigned long long": {conv: "%s"},
	"off_t":              {conv: "int64(%s)"},

	"CUdeviceptr":                  {conv: "gpu.Addr(%s)"},
	"CUdevice":                     {conv: "int32(%s)", need: "Device"},
	"CUcontext":                    {conv: "handle.ID(%s)"},
	"CUstream":                     {conv: "handle.ID(%s)", need: "Stream"},
	"CUevent":                      {conv: "handle.ID(%s)", need: "Event"},
	"CUmodule":                     {conv: "handle.ID(%s)"},
	"CUfunction":                   {conv: "handle.ID(%s)"},
	"cudaStream_t":                 {conv: "handle.ID(%s)", need: "Stream"},
	"cudaEvent_t":                  {conv: "handle.ID(%s)", need: "Event"},
	"CUfileHandle_t":               {conv: "handle.ID(%s)"},
	"CUfileBatchHandle_t":          {conv: "handle.ID(%s)"},
	"CUmemGenericAllocationHandle": {conv: "handle.ID(%s)"},
	"CUhostFn":                     {conv: "cmem.Ptr(%s)"},
	"CUstreamCallback":             {conv: "cmem.Ptr(%s)"},
	"cudaHostFn_t":                 {conv: "cmem.Ptr(%s)"},
	"cudaStreamCallback_t":         {conv: "cmem.Ptr(%s)"},

	"CUdevice_attribute":               {conv: "int32(%s)"},
	"CUlimit":                          {conv: "int32(%s)"},
	"CUfunction_attribute":             {conv: "int32(%s)"},
	"CUpointer_attribute":              {conv: "int32(%s)"},
	"CUmem_advise":                     {conv: "int32(%s)"},
	"CUmemAllocationGranularity_flags": {conv: "int32(%s)"},
	"CUmemRangeHandleType":             {conv: "int32(%s)"},
	"CUflushGPUDirectRDMAWritesTarget": {conv: "int32(%s)"},
	"CUflushGPUDirectRDMAWritesScope":  {conv: "int32(%s)"},
	"CUmemLocation":                    {conv: "int32(%s)", members: []string{"type", "id"}},

	"enum cudaDeviceAttr":                     {conv: "int32(%s)"},
	"enum cudaLimit":                          {conv: "int32(%s)"},
	"enum cudaMemoryAdvise":                   {conv: "int32(%s)"},
	"struct cudaMemLocation":                  {conv: "int32(%s)", members: []string{"type", "id"}},
	"enum cudaMemcpyKind":                     {conv: "int32(%s)"},
	"enum cudaFlushGPUDirectRDMAWritesTarget": {conv: "int32(%s)"},
	"enum cudaFlushGPUDirectRDMAWritesScope":  {conv: "int32(%s)"},

	"CUfileDriverStatusFlags_t":     {conv: "int32(%s)"},
	"CUfileP2PFlags_t":              {conv: "int32(%s)"},
	"CUFileSizeTConfigParameter_t":  {conv: "int32(%s)"},
	"CUFileBoolConfigParameter_t":   {conv: "int32(%s)"},
	"CUFileStringConfigParameter_t": {conv: "int32(%s)"},
}

type goType struct {
	conv    string   // Go expression; "%s" is the word
	need    need     // that the handle or number names
	members []string // of a struct
}

// words are the C expressions that a parameter is sent as.
func (p param) words() []string {
	if p.pointer() || goTypes[p.ctype].members == nil {
		return []string{p.name}
	}
	var w []string
	for _, m := range goTypes[p.ctype].members {
		w = append(w, p.name+"."+m)
	}
	return w
}

func (p param) conv() string {
	switch {
	case p.address:
		return "gpu.Addr(%s)"
	case p.pointer():
		return "cmem.Ptr(%s)"
	}
	return goTypes[p.ctype].conv
}
