/*
 * The cuFile API. Written from the published interface and from measurements:
 * names, numbers and layouts are NVIDIA's, the text is not. Programs built
 * with this header run with Culvert's libcufile.so.0 and with NVIDIA's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef CULVERT_CUFILE_H
#define CULVERT_CUFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#include <cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Errors. */

#define CUFILEOP_BASE_ERR 5000

/* X(code, name, what it means) */
#define CULVERT_CUFILE_ERRORS(X)                                                                   \
	X(0, CU_FILE_SUCCESS, "success")                                                           \
	X(5001, CU_FILE_DRIVER_NOT_INITIALIZED, "the driver is not open")                          \
	X(5002, CU_FILE_DRIVER_INVALID_PROPS, "invalid driver property")                           \
	X(5003, CU_FILE_DRIVER_UNSUPPORTED_LIMIT, "driver property out of range")                  \
	X(5004, CU_FILE_DRIVER_VERSION_MISMATCH, "library and nvidia-fs versions do not match")    \
	X(5005, CU_FILE_DRIVER_VERSION_READ_ERROR, "the nvidia-fs version cannot be read")         \
	X(5006, CU_FILE_DRIVER_CLOSING, "the driver is closing")                                   \
	X(5007, CU_FILE_PLATFORM_NOT_SUPPORTED, "this platform is not supported")                  \
	X(5008, CU_FILE_IO_NOT_SUPPORTED, "I/O on this file is not supported")                     \
	X(5009, CU_FILE_DEVICE_NOT_SUPPORTED, "this GPU is not supported")                         \
	X(5010, CU_FILE_NVFS_DRIVER_ERROR, "nvidia-fs reported an error")                          \
	X(5011, CU_FILE_CUDA_DRIVER_ERROR, "CUDA reported an error")                               \
	X(5012, CU_FILE_CUDA_POINTER_INVALID, "invalid device pointer")                            \
	X(5013, CU_FILE_CUDA_MEMORY_TYPE_INVALID, "this kind of memory cannot be registered")      \
	X(5014, CU_FILE_CUDA_POINTER_RANGE_ERROR, "the range leaves the allocation")               \
	X(5015, CU_FILE_CUDA_CONTEXT_MISMATCH, "the memory belongs to another context")            \
	X(5016, CU_FILE_INVALID_MAPPING_SIZE, "more than may be pinned")                           \
	X(5017, CU_FILE_INVALID_MAPPING_RANGE, "the range leaves the registered buffer")           \
	X(5018, CU_FILE_INVALID_FILE_TYPE, "not a regular file or block device")                   \
	X(5019, CU_FILE_INVALID_FILE_OPEN_FLAG, "the file was opened with unsuitable flags")       \
	X(5020, CU_FILE_DIO_NOT_SET, "the file was opened without O_DIRECT")                       \
	X(5022, CU_FILE_INVALID_VALUE, "invalid argument")                                         \
	X(5023, CU_FILE_MEMORY_ALREADY_REGISTERED, "the memory is registered")                     \
	X(5024, CU_FILE_MEMORY_NOT_REGISTERED, "the memory is not registered")                     \
	X(5025, CU_FILE_PERMISSION_DENIED, "permission denied")                                    \
	X(5026, CU_FILE_DRIVER_ALREADY_OPEN, "the driver is open")                                 \
	X(5027, CU_FILE_HANDLE_NOT_REGISTERED, "the handle is not registered")                     \
	X(5028, CU_FILE_HANDLE_ALREADY_REGISTERED, "the handle is registered")                     \
	X(5029, CU_FILE_DEVICE_NOT_FOUND, "GPU not found")                                         \
	X(5030, CU_FILE_INTERNAL_ERROR, "internal error")                                          \
	X(5031, CU_FILE_GETNEWFD_FAILED, "a second descriptor could not be opened")                \
	X(5033, CU_FILE_NVFS_SETUP_ERROR, "setting the driver up failed")                          \
	X(5034, CU_FILE_IO_DISABLED, "the configuration forbids I/O on this file")                 \
	X(5035, CU_FILE_BATCH_SUBMIT_FAILED, "submitting the batch failed")                        \
	X(5036, CU_FILE_GPU_MEMORY_PINNING_FAILED, "GPU memory could not be pinned")               \
	X(5037, CU_FILE_BATCH_FULL, "the batch is full")                                           \
	X(5038, CU_FILE_ASYNC_NOT_SUPPORTED, "stream I/O is not supported")                        \
	X(5039, CU_FILE_INTERNAL_BATCH_SETUP_ERROR, "setting a batch up failed")                   \
	X(5040, CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR, "the batch was refused")                      \
	X(5041, CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR, "the status of the batch is not known")    \
	X(5042, CU_FILE_INTERNAL_BATCH_CANCEL_ERROR, "the batch could not be cancelled")           \
	X(5043, CU_FILE_NOMEM_ERROR, "out of memory")                                              \
	X(5044, CU_FILE_IO_ERROR, "I/O error")                                                     \
	X(5045, CU_FILE_INTERNAL_BUF_REGISTER_ERROR, "registering an internal buffer failed")      \
	X(5046, CU_FILE_HASH_OPR_ERROR, "internal table error")                                    \
	X(5047, CU_FILE_INVALID_CONTEXT_ERROR, "no CUDA context is current")                       \
	X(5048, CU_FILE_NVFS_INTERNAL_DRIVER_ERROR, "nvidia-fs failed inside")                     \
	X(5049, CU_FILE_BATCH_NOCOMPAT_ERROR, "the batch needs compatibility mode, which is off")  \
	X(5050, CU_FILE_IO_MAX_ERROR, "no error has this number")

typedef enum CUfileOpError {
#define X(code, name, text) name = code,
	CULVERT_CUFILE_ERRORS(X)
#undef X
} CUfileOpError;

static inline const char *cufileop_status_error(CUfileOpError status)
{
	switch ((int)status) {
#define X(code, name, text) \
	case code:          \
		return text;
		CULVERT_CUFILE_ERRORS(X)
#undef X
	}
	return "unknown cuFile error";
}

typedef struct CUfileError {
	CUfileOpError err; /* cuFile's code */
	CUresult cu_err;   /* CUDA's, when err is CU_FILE_CUDA_DRIVER_ERROR */
} CUfileError_t;

#define IS_CUFILE_ERR(err) (abs((int)(err)) > CUFILEOP_BASE_ERR)
#define CUFILE_ERRSTR(err) cufileop_status_error((CUfileOpError)abs((int)(err)))
#define IS_CUDA_ERR(status) ((status).err == CU_FILE_CUDA_DRIVER_ERROR)
#define CU_FILE_CUDA_ERR(status) ((status).cu_err)

/* cuFileGetErrorString says what a status means. It is no symbol of the library. Programs
 * in C++ often have a template of this name, as NVIDIA's samples do: where they do, a status
 * fits that better than a class made of it. */
#ifdef __cplusplus
struct culvert_status {
	CUfileError_t status;
	culvert_status(CUfileError_t s) : status(s) {}
};
#define CULVERT_STATUS struct culvert_status
#define CULVERT_PLAIN(given) (given).status
#else
#define CULVERT_STATUS CUfileError_t
#define CULVERT_PLAIN(given) (given)
#endif
static inline const char *cuFileGetErrorString(CULVERT_STATUS given)
{
	CUfileError_t status = CULVERT_PLAIN(given);
	const char *text = NULL;
	if (IS_CUDA_ERR(status) && cuGetErrorString(status.cu_err, &text) == CUDA_SUCCESS && text)
		return text;
	return cufileop_status_error(status.err);
}

/* Files. */

typedef void *CUfileHandle_t;

enum CUfileFileHandleType {
	CU_FILE_HANDLE_TYPE_OPAQUE_FD = 1,
	CU_FILE_HANDLE_TYPE_OPAQUE_WIN32 = 2,
	CU_FILE_HANDLE_TYPE_USERSPACE_FS = 3
};

typedef struct cufileRDMAInfo {
	int version;
	int desc_len;
	const char *desc_str;
} cufileRDMAInfo_t;

typedef struct CUfileFSOps {
	const char *(*fs_type)(const void *handle);
	int (*getRDMADeviceList)(const void *handle, struct sockaddr **hostaddrs);
	int (*getRDMADevicePriority)(const void *handle, char *, size_t, loff_t, const struct sockaddr *hostaddr);
	ssize_t (*read)(const void *handle, char *, size_t, loff_t, const cufileRDMAInfo_t *);
	ssize_t (*write)(const void *handle, const char *, size_t, loff_t, const cufileRDMAInfo_t *);
} CUfileFSOps_t;

typedef struct CUfileDescr_t {
	enum CUfileFileHandleType type;
	union {
		int fd;
		void *handle;
	} handle;
	const CUfileFSOps_t *fs_ops;
} CUfileDescr_t;

#define CU_FILE_RDMA_REGISTER 1
#define CU_FILE_RDMA_RELAXED_ORDERING (1 << 1)

/* The driver. */

typedef enum CUfileDriverStatusFlags {
	CU_FILE_LUSTRE_SUPPORTED = 0,
	CU_FILE_WEKAFS_SUPPORTED = 1,
	CU_FILE_NFS_SUPPORTED = 2,
	CU_FILE_GPFS_SUPPORTED = 3,
	CU_FILE_NVME_SUPPORTED = 4,
	CU_FILE_NVMEOF_SUPPORTED = 5,
	CU_FILE_SCSI_SUPPORTED = 6,
	CU_FILE_SCALEFLUX_CSD_SUPPORTED = 7,
	CU_FILE_NVMESH_SUPPORTED = 8,
	CU_FILE_BEEGFS_SUPPORTED = 9,
	CU_FILE_NVME_P2P_SUPPORTED = 11,
	CU_FILE_SCATEFS_SUPPORTED = 12,
	CU_FILE_VIRTIOFS_SUPPORTED = 13,
	CU_FILE_MAX_TARGET_TYPES
} CUfileDriverStatusFlags_t;

typedef enum CUfileDriverControlFlags {
	CU_FILE_USE_POLL_MODE = 0,
	CU_FILE_ALLOW_COMPAT_MODE = 1
} CUfileDriverControlFlags_t;

typedef enum CUfileFeatureFlags {
	CU_FILE_DYN_ROUTING_SUPPORTED = 0,
	CU_FILE_BATCH_IO_SUPPORTED = 1,
	CU_FILE_STREAMS_SUPPORTED = 2,
	CU_FILE_PARALLEL_IO_SUPPORTED = 3,
	CU_FILE_P2P_SUPPORTED = 4
} CUfileFeatureFlags_t;

typedef enum CUfileP2PFlags {
	CUFILE_P2PDMA = 0,
	CUFILE_NVFS = 1,
	CUFILE_DMABUF = 2,
	CUFILE_C2C = 3,
	CUFILE_NVIDIA_PEERMEM = 4
} CUfileP2PFlags_t;

/* Sizes are in KiB; flags are the bit numbers above. */
typedef struct CUfileDrvProps {
	struct {
		unsigned int major_version;
		unsigned int minor_version;
		size_t poll_thresh_size;
		size_t max_direct_io_size;
		unsigned int dstatusflags;
		unsigned int dcontrolflags;
	} nvfs;
	unsigned int fflags;
	unsigned int max_device_cache_size;
	unsigned int per_buffer_cache_size;
	unsigned int max_device_pinned_mem_size;
	unsigned int max_batch_io_size;
	unsigned int max_batch_io_timeout_msecs;
} CUfileDrvProps_t;

/* Batches and vectors. */

typedef void *CUfileBatchHandle_t;

typedef enum CUfileOpcode { CUFILE_READ = 0, CUFILE_WRITE = 1 } CUfileOpcode_t;

typedef enum CUFILEStatus_enum {
	CUFILE_WAITING = 0x01,
	CUFILE_PENDING = 0x02,
	CUFILE_INVALID = 0x04,
	CUFILE_CANCELED = 0x08,
	CUFILE_COMPLETE = 0x10,
	CUFILE_TIMEOUT = 0x20,
	CUFILE_FAILED = 0x40
} CUfileStatus_t;

typedef enum cufileBatchMode { CUFILE_BATCH = 1 } CUfileBatchMode_t;

typedef struct CUfileIOParams {
	CUfileBatchMode_t mode;
	union {
		struct {
			void *devPtr_base;
			off_t file_offset;
			off_t devPtr_offset;
			size_t size;
		} batch;
	} u;
	CUfileHandle_t fh;
	CUfileOpcode_t opcode;
	void *cookie;
} CUfileIOParams_t;

typedef struct CUfileIOEvents {
	void *cookie;
	CUfileStatus_t status;
	size_t ret;
} CUfileIOEvents_t;

typedef struct CUfileIOVec {
	void *base;
	size_t len;
} CUfileIOVec_t;

/* Streams. */

#define CU_FILE_STREAM_FIXED_BUF_OFFSET 1
#define CU_FILE_STREAM_FIXED_FILE_OFFSET 2
#define CU_FILE_STREAM_FIXED_FILE_SIZE 4
#define CU_FILE_STREAM_PAGE_ALIGNED_INPUTS 8

/* Parameters. */

typedef enum CUFileSizeTConfigParameter_t {
	CUFILE_PARAM_PROFILE_STATS = 0,
	CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH = 1,
	CUFILE_PARAM_EXECUTION_MAX_IO_THREADS = 2,
	CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB = 3,
	CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM = 4,
	CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB = 5,
	CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB = 6,
	CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB = 7,
	CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB = 8,
	CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE = 9,
	CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB = 10,
	CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS = 11
} CUFileSizeTConfigParameter_t;

typedef enum CUFileBoolConfigParameter_t {
	CUFILE_PARAM_PROPERTIES_USE_POLL_MODE = 0,
	CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE = 1,
	CUFILE_PARAM_FORCE_COMPAT_MODE = 2,
	CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE = 3,
	CUFILE_PARAM_EXECUTION_PARALLEL_IO = 4,
	CUFILE_PARAM_PROFILE_NVTX = 5,
	CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY = 6,
	CUFILE_PARAM_USE_PCIP2PDMA = 7,
	CUFILE_PARAM_PREFER_IO_URING = 8,
	CUFILE_PARAM_FORCE_ODIRECT_MODE = 9,
	CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION = 10,
	CUFILE_PARAM_STREAM_MEMOPS_BYPASS = 11
} CUFileBoolConfigParameter_t;

typedef enum CUFileStringConfigParameter_t {
	CUFILE_PARAM_LOGGING_LEVEL = 0,
	CUFILE_PARAM_ENV_LOGFILE_PATH = 1,
	CUFILE_PARAM_LOG_DIR = 2
} CUFileStringConfigParameter_t;

/* Statistics. */

#define CUFILE_GPU_UUID_LEN 16

typedef struct CUfileOpCounter {
	uint64_t ok;
	uint64_t err;
} CUfileOpCounter_t;

typedef struct CUfileStatsLevel1 {
	CUfileOpCounter_t read_ops;
	CUfileOpCounter_t write_ops;
	CUfileOpCounter_t hdl_register_ops;
	CUfileOpCounter_t hdl_deregister_ops;
	CUfileOpCounter_t buf_register_ops;
	CUfileOpCounter_t buf_deregister_ops;
	uint64_t read_bytes;
	uint64_t write_bytes;
	uint64_t read_bw_bytes_per_sec;
	uint64_t write_bw_bytes_per_sec;
	uint64_t read_lat_avg_us;
	uint64_t write_lat_avg_us;
	uint64_t read_ops_per_sec;
	uint64_t write_ops_per_sec;
	uint64_t read_lat_sum_us;
	uint64_t write_lat_sum_us;
	CUfileOpCounter_t batch_submit_ops;
	CUfileOpCounter_t batch_complete_ops;
	CUfileOpCounter_t batch_setup_ops;
	CUfileOpCounter_t batch_cancel_ops;
	CUfileOpCounter_t batch_destroy_ops;
	CUfileOpCounter_t batch_enqueued_ops;
	CUfileOpCounter_t batch_posix_enqueued_ops;
	CUfileOpCounter_t batch_processed_ops;
	CUfileOpCounter_t batch_posix_processed_ops;
	CUfileOpCounter_t batch_nvfs_submit_ops;
	CUfileOpCounter_t batch_p2p_submit_ops;
	CUfileOpCounter_t batch_aio_submit_ops;
	CUfileOpCounter_t batch_iouring_submit_ops;
	CUfileOpCounter_t batch_mixed_io_submit_ops;
	CUfileOpCounter_t batch_total_submit_ops;
	uint64_t batch_read_bytes;
	uint64_t batch_write_bytes;
	uint64_t batch_read_bw_bytes;
	uint64_t batch_write_bw_bytes;
	uint64_t batch_submit_lat_avg_us;
	uint64_t batch_completion_lat_avg_us;
	uint64_t batch_submit_ops_per_sec;
	uint64_t batch_complete_ops_per_sec;
	uint64_t batch_submit_lat_sum_us;
	uint64_t batch_completion_lat_sum_us;
	uint64_t last_batch_read_bytes;
	uint64_t last_batch_write_bytes;
} CUfileStatsLevel1_t;

typedef struct CUfileStatsLevel2 {
	CUfileStatsLevel1_t basic;
	uint64_t read_size_kb_hist[32];
	uint64_t write_size_kb_hist[32];
} CUfileStatsLevel2_t;

typedef struct CUfilePerGpuStats {
	char uuid[CUFILE_GPU_UUID_LEN];
	uint64_t read_bytes;
	uint64_t read_bw_bytes_per_sec;
	uint64_t read_utilization;
	uint64_t read_duration_us;
	uint64_t n_total_reads;
	uint64_t n_p2p_reads;
	uint64_t n_nvfs_reads;
	uint64_t n_posix_reads;
	uint64_t n_unaligned_reads;
	uint64_t n_dr_reads;
	uint64_t n_sparse_regions;
	uint64_t n_inline_regions;
	uint64_t n_reads_err;
	uint64_t writes_bytes;
	uint64_t write_bw_bytes_per_sec;
	uint64_t write_utilization;
	uint64_t write_duration_us;
	uint64_t n_total_writes;
	uint64_t n_p2p_writes;
	uint64_t n_nvfs_writes;
	uint64_t n_posix_writes;
	uint64_t n_unaligned_writes;
	uint64_t n_dr_writes;
	uint64_t n_writes_err;
	uint64_t n_mmap;
	uint64_t n_mmap_ok;
	uint64_t n_mmap_err;
	uint64_t n_mmap_free;
	uint64_t reg_bytes;
} CUfilePerGpuStats_t;

typedef struct CUfileStatsLevel3 {
	CUfileStatsLevel2_t detailed;
	uint32_t num_gpus;
	CUfilePerGpuStats_t per_gpu_stats[16];
} CUfileStatsLevel3_t;


/* Calls: driver. */
CUfileError_t cuFileDriverOpen(void);
CUfileError_t cuFileDriverClose_v2(void);
/* The library has the plain name, too; programs get the newer one. */
#define cuFileDriverClose cuFileDriverClose_v2
long cuFileUseCount(void);
CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *props);
CUfileError_t cuFileDriverSetPollMode(bool poll, size_t poll_threshold_kb);
CUfileError_t cuFileDriverSetMaxDirectIOSize(size_t max_direct_io_size_kb);
CUfileError_t cuFileDriverSetMaxCacheSize(size_t max_cache_size_kb);
CUfileError_t cuFileDriverSetMaxPinnedMemSize(size_t max_pinned_size_kb);
CUfileError_t cuFileGetVersion(int *version);
CUfileError_t cuFileGetBARSizeInKB(int gpu_index, size_t *bar_size_kb);
CUfileError_t cuFileDriverSetP2PFlags(CUfileDriverStatusFlags_t target, CUfileP2PFlags_t flags);
CUfileError_t cuFileDriverGetP2PFlags(CUfileDriverStatusFlags_t target, CUfileP2PFlags_t *flags);
CUfileError_t cuFileExportPCIeTopology(const char *filename);

/* Calls: files and buffers. */
CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr);
void cuFileHandleDeregister(CUfileHandle_t fh);
CUfileError_t cuFileBufRegister(const void *base, size_t length, int flags);
CUfileError_t cuFileBufDeregister(const void *base);

/* Calls: synchronous I/O. */
ssize_t cuFileRead(CUfileHandle_t fh, void *base, size_t size, off_t file_offset, off_t buf_offset);
ssize_t cuFileWrite(CUfileHandle_t fh, const void *base, size_t size, off_t file_offset, off_t buf_offset);
ssize_t cuFileReadv(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt, off_t file_offset, unsigned flags);
ssize_t cuFileWritev(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt, off_t file_offset, unsigned flags);

/* Calls: batches. */
CUfileError_t cuFileBatchIOSetUp(CUfileBatchHandle_t *batch, unsigned nr);
CUfileError_t cuFileBatchIOSubmit(CUfileBatchHandle_t batch, unsigned nr, CUfileIOParams_t *params, unsigned flags);
CUfileError_t cuFileBatchIOGetStatus(CUfileBatchHandle_t batch, unsigned min_nr, unsigned *nr,
	CUfileIOEvents_t *events, struct timespec *timeout);
CUfileError_t cuFileBatchIOCancel(CUfileBatchHandle_t batch);
void cuFileBatchIODestroy(CUfileBatchHandle_t batch);

/* Calls: streams. */
CUfileError_t cuFileStreamRegister(CUstream stream, unsigned flags);
CUfileError_t cuFileStreamDeregister(CUstream stream);
CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *base, size_t *size_p, off_t *file_offset_p,
	off_t *buf_offset_p, ssize_t *bytes_read_p, CUstream stream);
CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *base, size_t *size_p, off_t *file_offset_p,
	off_t *buf_offset_p, ssize_t *bytes_written_p, CUstream stream);

/* Calls: parameters. */
CUfileError_t cuFileGetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t *value);
CUfileError_t cuFileGetParameterBool(CUFileBoolConfigParameter_t param, bool *value);
CUfileError_t cuFileGetParameterString(CUFileStringConfigParameter_t param, char *value, int len);
CUfileError_t cuFileSetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t value);
CUfileError_t cuFileSetParameterBool(CUFileBoolConfigParameter_t param, bool value);
CUfileError_t cuFileSetParameterString(CUFileStringConfigParameter_t param, const char *value);
CUfileError_t cuFileGetParameterMinMaxValue(CUFileSizeTConfigParameter_t param, size_t *min_value, size_t *max_value);
CUfileError_t cuFileSetParameterPosixPoolSlabArray(const size_t *size_kb, const size_t *count, int len);
CUfileError_t cuFileGetParameterPosixPoolSlabArray(size_t *size_kb, size_t *count, int len);
CUfileError_t cuFileSetParameterGpuBounceBufferSlabArray(const size_t *size_kb, const size_t *count, int len);
CUfileError_t cuFileGetParameterGpuBounceBufferSlabArray(size_t *size_kb, size_t *count, int len);

/* Calls: statistics. */
CUfileError_t cuFileSetStatsLevel(int level);
CUfileError_t cuFileGetStatsLevel(int *level);
CUfileError_t cuFileStatsStart(void);
CUfileError_t cuFileStatsStop(void);
CUfileError_t cuFileStatsReset(void);
CUfileError_t cuFileGetStatsL1(CUfileStatsLevel1_t *stats);
CUfileError_t cuFileGetStatsL2(CUfileStatsLevel2_t *stats);
CUfileError_t cuFileGetStatsL3(CUfileStatsLevel3_t *stats);

#ifdef __cplusplus
}
#endif
#endif
