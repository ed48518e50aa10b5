package main

// A Library is one shared library of the C side.
type Library struct {
	Name    string // of the generated files
	Prefix  string // of the function names; what follows names the Go method
	Field   string // of dispatch.Core, the receiver of the Go methods
	Calls   bool   // methods take a softcuda.Call
	Private bool   // functions are for C code of the shim, which has the exported ones
	Results map[string]Result
	Markers []string // symbols without a function
	Funcs   []Func
	// Local are functions written in C by hand, which never reach the Go core.
	Local []string
	// Missing are public names that only report that they are not supported.
	Missing []string
	// MissingCode is their result, a C expression.
	MissingCode string
}

// A Func is a C function that the Go core answers.
type Func struct {
	// Decl is the C declaration. Marks may follow a parameter's name:
	//
	//	?  NULL is allowed; every other pointer is checked before the call
	//	@  the pointer is an address of the GPU: gpu.Addr in Go
	//	#  the number is that of a device
	Decl string
	// Go names the method; by default the C name without prefix and version.
	Go string
	// Driver is set for a function of the runtime that a method of the driver
	// answers.
	Driver bool
	// Needs is what is looked up before the call. By default the first stream,
	// event or device among the parameters, in this order, and otherwise a
	// current context.
	Needs need
	// Since is the CUDA version of this variant, where cuGetProcAddress has to
	// choose between several.
	Since int
	// Aliases are further names of the same function.
	Aliases []string
	// PerThread adds the name that programs built for per-thread default
	// streams import: "ptsz" or "ptds". They share the legacy default stream,
	// which orders more than they require.
	PerThread string
	// Only is the major version of the library that has the function, where not
	// all have it.
	Only int
	// Plain methods return the C value itself instead of an error.
	Plain bool
	// Thread is set for a method that takes the thread of the caller first.
	Thread bool
	// Hidden is set for a function that only the shim calls.
	Hidden bool
	// Unsupported is set for a function without a method: the error of package
	// dispatch that it returns.
	Unsupported string
}

// A need is the name of a constant of softcuda without its prefix.
type need string

const (
	nothing need = "Nothing"
	driver  need = "Driver"
	context need = "Context"
)

// A Result says how a C return type is made.
type Result struct {
	// Fail is the C expression for "no Go core": it could not be loaded, or this
	// is a forked child.
	Fail string
	// Go is the variable of package dispatch that makes the result.
	Go string
	// C converts the word to the return type; "%s" is the word.
	C string
	// Errno is the C expression for errno beside Fail; empty keeps errno.
	Errno string
}

var libraries = []*Library{&cufile, &cuda, &cudart, &verbs, &devNodes, &gdrapi}
