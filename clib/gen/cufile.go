package main

// cufile is libcufile.so.0: the 43 public functions of release 1.15, the two
// of 1.16, the three of 1.17 and the two of 1.19.
var cufile = Library{
	Name:   "cufile",
	Prefix: "cuFile",
	Field:  "File",
	Results: map[string]Result{
		"CUfileError_t": {
			Fail: "culvert_file_error(CU_FILE_DRIVER_NOT_INITIALIZED)",
			Go:   "fileStatus",
			C:    "culvert_file_status(%s)",
		},
		"ssize_t": {Go: "fileCount", Fail: "-1", Errno: "CU_FILE_DRIVER_NOT_INITIALIZED", C: "(ssize_t)%s"},
		"long":    {Go: "value", Fail: "0", C: "(long)%s"},
		"void":    {Go: "value"},
	},
	Markers: []string{"culvert_marker"},
	Funcs: []Func{
		// Driver.
		{Decl: "CUfileError_t cuFileDriverOpen(void)"},
		{Decl: "CUfileError_t cuFileDriverClose_v2(void)", Aliases: []string{"cuFileDriverClose"}},
		{Decl: "long cuFileUseCount(void)", Plain: true},
		{Decl: "CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *props)"},
		{Decl: "CUfileError_t cuFileDriverSetPollMode(bool poll, size_t poll_threshold_kb)"},
		{Decl: "CUfileError_t cuFileDriverSetMaxDirectIOSize(size_t max_direct_io_size_kb)"},
		{Decl: "CUfileError_t cuFileDriverSetMaxCacheSize(size_t max_cache_size_kb)"},
		{Decl: "CUfileError_t cuFileDriverSetMaxPinnedMemSize(size_t max_pinned_size_kb)"},
		{Decl: "CUfileError_t cuFileGetVersion(int *version)"},
		{Decl: "CUfileError_t cuFileGetBARSizeInKB(int gpu_index, size_t *bar_size_kb)"},
		{Decl: "CUfileError_t cuFileDriverSetP2PFlags(CUfileDriverStatusFlags_t target, CUfileP2PFlags_t flags)"},
		{Decl: "CUfileError_t cuFileDriverGetP2PFlags(CUfileDriverStatusFlags_t target, CUfileP2PFlags_t *flags)"},
		{Decl: "CUfileError_t cuFileExportPCIeTopology(const char *filename)", Unsupported: "errNoTopology"},

		// Files and buffers.
		{Decl: "CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr)"},
		{Decl: "void cuFileHandleDeregister(CUfileHandle_t fh)"},
		{Decl: "CUfileError_t cuFileBufRegister(const void *base, size_t length, int flags)"},
		{Decl: "CUfileError_t cuFileBufDeregister(const void *base)"},

		// Synchronous I/O. The methods answer NULL, with errno.
		{Decl: "ssize_t cuFileRead(CUfileHandle_t fh, void *base?, size_t size, off_t file_offset, off_t buf_offset)"},
		{Decl: "ssize_t cuFileWrite(CUfileHandle_t fh, const void *base?, size_t size, off_t file_offset, off_t buf_offset)"},
		{Decl: "ssize_t cuFileReadv(CUfileHandle_t fh, const CUfileIOVec_t *iov?, size_t iovcnt, off_t file_offset, unsigned flags)"},
		{Decl: "ssize_t cuFileWritev(CUfileHandle_t fh, const CUfileIOVec_t *iov?, size_t iovcnt, off_t file_offset, unsigned flags)"},

		// Batches.
		{Decl: "CUfileError_t cuFileBatchIOSetUp(CUfileBatchHandle_t *batch, unsigned nr)"},
		{Decl: "CUfileError_t cuFileBatchIOSubmit(CUfileBatchHandle_t batch, unsigned nr, CUfileIOParams_t *params, unsigned flags)"},
		{Decl: "CUfileError_t cuFileBatchIOGetStatus(CUfileBatchHandle_t batch, unsigned min_nr, unsigned *nr, CUfileIOEvents_t *events, struct timespec *timeout?)"},
		{Decl: "CUfileError_t cuFileBatchIOCancel(CUfileBatchHandle_t batch)"},
		{Decl: "void cuFileBatchIODestroy(CUfileBatchHandle_t batch)"},

		// Streams.
		{Decl: "CUfileError_t cuFileStreamRegister(CUstream stream, unsigned flags)"},
		{Decl: "CUfileError_t cuFileStreamDeregister(CUstream stream)"},
		{Decl: "CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *base, size_t *size_p, off_t *file_offset_p, off_t *buf_offset_p, ssize_t *bytes_read_p, CUstream stream)", Thread: true},
		{Decl: "CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *base, size_t *size_p, off_t *file_offset_p, off_t *buf_offset_p, ssize_t *bytes_written_p, CUstream stream)", Thread: true},

		// Parameters.
		{Decl: "CUfileError_t cuFileGetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t *value)"},
		{Decl: "CUfileError_t cuFileGetParameterBool(CUFileBoolConfigParameter_t param, bool *value)"},
		{Decl: "CUfileError_t cuFileGetParameterString(CUFileStringConfigParameter_t param, char *value, int len)"},
		{Decl: "CUfileError_t cuFileSetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t value)"},
		{Decl: "CUfileError_t cuFileSetParameterBool(CUFileBoolConfigParameter_t param, bool value)"},
		{Decl: "CUfileError_t cuFileSetParameterString(CUFileStringConfigParameter_t param, const char *value)"},
		{Decl: "CUfileError_t cuFileGetParameterMinMaxValue(CUFileSizeTConfigParameter_t param, size_t *min_value, size_t *max_value)"},
		{Decl: "CUfileError_t cuFileSetParameterPosixPoolSlabArray(const size_t *size_kb, const size_t *count, int len)"},
		{Decl: "CUfileError_t cuFileGetParameterPosixPoolSlabArray(size_t *size_kb, size_t *count, int len)"},
		{Decl: "CUfileError_t cuFileSetParameterGpuBounceBufferSlabArray(const size_t *size_kb, const size_t *count, int len)"},
		{Decl: "CUfileError_t cuFileGetParameterGpuBounceBufferSlabArray(size_t *size_kb, size_t *count, int len)"},

		// Statistics.
		{Decl: "CUfileError_t cuFileSetStatsLevel(int level)"},
		{Decl: "CUfileError_t cuFileGetStatsLevel(int *level)"},
		{Decl: "CUfileError_t cuFileStatsStart(void)"},
		{Decl: "CUfileError_t cuFileStatsStop(void)"},
		{Decl: "CUfileError_t cuFileStatsReset(void)"},
		{Decl: "CUfileError_t cuFileGetStatsL1(CUfileStatsLevel1_t *stats)"},
		{Decl: "CUfileError_t cuFileGetStatsL2(CUfileStatsLevel2_t *stats)"},
		{Decl: "CUfileError_t cuFileGetStatsL3(CUfileStatsLevel3_t *stats)"},
	},
}
