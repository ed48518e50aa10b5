package main

// A Library is one shared library of the C side.
type Library struct {
	Name    string // of the generated files
	Header  string // in clib/include, checked by the compiler against the table
	Prefix  string // of the function names; what follows names the Go method
	Field   string // of dispatch.Core, the receiver of the Go methods
	Thread  bool   // methods take the calling thread's state
	Results map[string]Result
	Markers []string // symbols without a function
	Funcs   []Func
	// Local are functions written in C by hand, which never reach the core.
	Local []string
	// Missing are public names that exist only to say that they are not there.
	Missing []string
	// MissingCode is what they answer.
	MissingCode string
}

// A Func is a C function that the core answers.
type Func struct {
	// Decl is the C declaration. A '?' after a parameter's name allows NULL;
	// every other pointer is checked before the Go method sees it.
	Decl string
	// Go names the method; by default the C name without prefix and version.
	Go string
	// Since is the CUDA version of this variant, where cuGetProcAddress has to
	// choose between several.
	Since int
	// Aliases are further names of the same function.
	Aliases []string
	// PerThread adds the name that programs built for per-thread default
	// streams import: "ptsz" or "ptds". They share the legacy default stream,
	// which orders more than they ask for.
	PerThread string
	// Only is the major version of the library that has the function, where it
	// is not in all.
	Only int
	// Plain methods return the C value itself instead of an error.
	Plain bool
}

// A Result says how a C return type is made.
type Result struct {
	// Fail is the C expression for "there is no core to ask": it could not be
	// loaded, or this is a forked child.
	Fail string
	// Null is the Go expression for a NULL where none may be.
	Null string
	// Wrap is the Go function that turns the method's results into a word.
	Wrap string
	// Broken is the Go function that answers for a call that panicked.
	Broken string
	// C turns the word into the return type, "%s" being the call.
	C string
	// Errno is the C expression for errno beside Fail; empty leaves it alone.
	Errno string
}

var libraries = []*Library{&cufile, &cuda, &cudart}
