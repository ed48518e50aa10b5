package main

// devNodes is what libculvert-dev.so asks of the Go core about the software machine's
// device nodes. Its exported functions are the C library's, written by hand in
// shim/dev_*.c.
var devNodes = Library{
	Name:    "dev",
	Prefix:  "culvert_dev_",
	Field:   "Dev",
	Private: true,
	Markers: []string{"culvert_dev"},
	Results: map[string]Result{
		"int":     {Go: "errnoStatus", Fail: "ENODEV", C: "(int)%s"},
		"ssize_t": {Go: "errnoCount", Fail: "-1", Errno: "ENODEV", C: "(ssize_t)%s"},
	},
	Funcs: []Func{
		{Decl: "ssize_t culvert_dev_open(const char *path, int flags, culvert_id *id)", Go: "Open"},
		{Decl: "ssize_t culvert_dev_mode(const char *path)", Go: "Mode"},
		{Decl: "int culvert_dev_dup(culvert_id id)", Go: "Dup"},
		{Decl: "int culvert_dev_close(culvert_id id)", Go: "Close"},
		{Decl: "int culvert_dev_ioctl(culvert_id id, unsigned long req, void *arg?)", Go: "Ioctl"},
		{Decl: "ssize_t culvert_dev_mmap(culvert_id id, size_t n, int prot, int flags, off_t off)", Go: "Mmap"},
		{Decl: "ssize_t culvert_dev_map_export(int fd, size_t n, int prot, int flags, off_t off)", Go: "MmapExport"},
		{Decl: "int culvert_dev_munmap(uint64_t addr, size_t n)", Go: "Munmap"},
	},
}
