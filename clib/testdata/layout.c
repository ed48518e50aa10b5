/* Prints size and offsets of the structs of cufile.h, one struct a line. */
#include <stdio.h>

#include <cuda_runtime.h>
#include <cufile.h>

#define AT(s, f) printf(" %s@%zu", #f, offsetof(s, f));
#define STRUCT(s, fields)                           \
	do {                                        \
		printf("%s %zu", #s, sizeof(s));    \
		fields printf("\n");                \
	} while (0)

int main(void)
{
	STRUCT(CUfileError_t, AT(CUfileError_t, err) AT(CUfileError_t, cu_err));
	STRUCT(CUfileDescr_t, AT(CUfileDescr_t, type) AT(CUfileDescr_t, handle) AT(CUfileDescr_t, fs_ops));
	STRUCT(CUfileDrvProps_t,
	       AT(CUfileDrvProps_t, nvfs.major_version) AT(CUfileDrvProps_t, nvfs.minor_version) AT(CUfileDrvProps_t, nvfs.poll_thresh_size)
		       AT(CUfileDrvProps_t, nvfs.max_direct_io_size) AT(CUfileDrvProps_t, nvfs.dstatusflags)
			       AT(CUfileDrvProps_t, nvfs.dcontrolflags) AT(CUfileDrvProps_t, fflags)
				       AT(CUfileDrvProps_t, max_device_cache_size) AT(CUfileDrvProps_t, per_buffer_cache_size)
					       AT(CUfileDrvProps_t, max_device_pinned_mem_size) AT(CUfileDrvProps_t, max_batch_io_size)
						       AT(CUfileDrvProps_t, max_batch_io_timeout_msecs));
	STRUCT(CUfileIOParams_t,
	       AT(CUfileIOParams_t, mode) AT(CUfileIOParams_t, u.batch.devPtr_base) AT(CUfileIOParams_t, u.batch.file_offset)
		       AT(CUfileIOParams_t, u.batch.devPtr_offset) AT(CUfileIOParams_t, u.batch.size) AT(CUfileIOParams_t, fh)
			       AT(CUfileIOParams_t, opcode) AT(CUfileIOParams_t, cookie));
	STRUCT(CUfileIOEvents_t, AT(CUfileIOEvents_t, cookie) AT(CUfileIOEvents_t, status) AT(CUfileIOEvents_t, ret));
	STRUCT(CUfileIOVec_t, AT(CUfileIOVec_t, base) AT(CUfileIOVec_t, len));
	STRUCT(cufileRDMAInfo_t, AT(cufileRDMAInfo_t, version) AT(cufileRDMAInfo_t, desc_len) AT(cufileRDMAInfo_t, desc_str));
	STRUCT(CUfileFSOps_t, AT(CUfileFSOps_t, fs_type) AT(CUfileFSOps_t, write));
	STRUCT(CUfileOpCounter_t, AT(CUfileOpCounter_t, ok) AT(CUfileOpCounter_t, err));
	STRUCT(CUfileStatsLevel1_t, AT(CUfileStatsLevel1_t, read_bytes) AT(CUfileStatsLevel1_t, batch_submit_ops)
					    AT(CUfileStatsLevel1_t, batch_read_bytes) AT(CUfileStatsLevel1_t, last_batch_write_bytes));
	STRUCT(CUfileStatsLevel2_t, AT(CUfileStatsLevel2_t, basic) AT(CUfileStatsLevel2_t, read_size_kb_hist)
					    AT(CUfileStatsLevel2_t, write_size_kb_hist));
	STRUCT(CUfilePerGpuStats_t, AT(CUfilePerGpuStats_t, read_bytes) AT(CUfilePerGpuStats_t, reg_bytes));
	STRUCT(CUfileStatsLevel3_t, AT(CUfileStatsLevel3_t, detailed) AT(CUfileStatsLevel3_t, num_gpus)
					    AT(CUfileStatsLevel3_t, per_gpu_stats));
	STRUCT(struct cudaPointerAttributes, AT(struct cudaPointerAttributes, device) AT(struct cudaPointerAttributes, devicePointer)
						     AT(struct cudaPointerAttributes, hostPointer));
	STRUCT(struct cudaDeviceProp, AT(struct cudaDeviceProp, totalGlobalMem) AT(struct cudaDeviceProp, major)
					      AT(struct cudaDeviceProp, pciBusID) AT(struct cudaDeviceProp, gpuDirectRDMASupported)
						      AT(struct cudaDeviceProp, hostNumaId));
	STRUCT(CUmemAllocationProp, AT(CUmemAllocationProp, requestedHandleTypes) AT(CUmemAllocationProp, location)
					    AT(CUmemAllocationProp, allocFlags));
	STRUCT(CUmemAccessDesc, AT(CUmemAccessDesc, flags));
	STRUCT(CUuuid, AT(CUuuid, bytes));
	return 0;
}
