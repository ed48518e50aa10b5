package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// watched are the cuFile functions that the watching libcufile forwards by code of its
// own, because it records more than their result.
var watched = []string{
	"cuFileHandleRegister", "cuFileHandleDeregister", "cuFileRead", "cuFileWrite", "cuFileReadv", "cuFileWritev",
	"cuFileBatchIOSubmit", "cuFileReadAsync", "cuFileWriteAsync",
}

// watchShim is a libcufile that forwards its calls to another one and records them.
func watchShim(t *table) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "/* %s */\n#include \"watch_local.h\"\n\nCULVERT_EXPORT const int culvert_marker = 1;\n", notice)
	for _, e := range t.entries {
		if e.lib != &cufile || slices.Contains(watched, e.name) {
			continue
		}
		for _, name := range append([]string{e.name}, e.Aliases...) {
			forwarder(&b, e, name)
		}
	}
	return b.Bytes()
}

// forwarder writes the function of one name, so that the engine gets the call by that
// name, too.
func forwarder(b *bytes.Buffer, e *entry, name string) {
	decl := strings.NewReplacer("?", "", "@", "", "#", "", e.name+"(", name+"(").Replace(e.Decl)
	var args []string
	for _, p := range e.params {
		args = append(args, p.name)
	}
	call := "real(" + strings.Join(args, ", ") + ")"
	fmt.Fprintf(b, "\nCULVERT_EXPORT %s;\nCULVERT_EXPORT %s\n{\n\tstatic void *_Atomic found;\n\t__typeof__(%s) *real;\n\t*(void **)&real = watch_find(&found, \"%s\");\n", decl, decl, name, name)
	switch e.ret {
	case "CUfileError_t":
		fmt.Fprintf(b, "\treturn watch_status(\"%s\", real ? %s : (CUfileError_t){CU_FILE_DRIVER_NOT_INITIALIZED, 0});\n}\n", name, call)
	case "void":
		fmt.Fprintf(b, "\twatch_call();\n\tif (real)\n\t\t%s;\n}\n", call)
	default:
		fmt.Fprintf(b, "\twatch_call();\n\treturn real ? %s : %s;\n}\n", call, e.lib.Results[e.ret].Fail)
	}
}
