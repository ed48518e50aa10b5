package main

// gdrapi is libgdrapi.so.2, GDRCopy's library. Functions that answer without the Go core
// are in shim/gdrapi_local.c.
var gdrapi = Library{
	Name:    "gdrapi",
	Prefix:  "gdr_",
	Field:   "GDR",
	Markers: []string{"culvert_gdrapi"},
	Local:   []string{"gdr_open", "gdr_get_info", "gdr_runtime_get_version", "gdr_get_mapping_type_string"},
	Results: map[string]Result{
		"int":     {Go: "errnoStatus", Fail: "ENODEV", C: "(int)%s"},
		"ssize_t": {Go: "errnoCount", Fail: "-1", Errno: "ENODEV", C: "(ssize_t)%s"},
	},
	Funcs: []Func{
		{Decl: "ssize_t culvert_gdr_open(void)", Go: "Open", Hidden: true},
		{Decl: "int gdr_close(gdr_t g)", Go: "Close"},
		{Decl: "int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space, gdr_mh_t *handle)", Go: "Pin"},
		{Decl: "int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags, gdr_mh_t *handle)", Go: "PinV2"},
		{Decl: "int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle)", Go: "Unpin"},
		{Decl: "int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int *flag)", Go: "CallbackFlag"},
		{Decl: "int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info)", Go: "Info"},
		{Decl: "int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size)", Go: "Map"},
		{Decl: "int gdr_map_v2(gdr_t g, gdr_mh_t handle, void **va, size_t size, int flags)", Go: "MapV2"},
		{Decl: "int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va?, size_t size)", Go: "Unmap"},
		{Decl: "int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr?, const void *h_ptr?, size_t size)", Go: "CopyTo"},
		{Decl: "int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr?, const void *map_d_ptr?, size_t size)", Go: "CopyFrom"},
		{Decl: "int gdr_driver_get_version(gdr_t g, int *major, int *minor)", Go: "DriverVersion"},
		{Decl: "int gdr_get_attribute(gdr_t g, gdr_attr_t attr, int *value)", Go: "Attribute"},
	},
}
