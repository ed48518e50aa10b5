package cufileconf

import (
	"fmt"
	"strings"
)

// A kind is the type of a key's value.
type kind uint8

const (
	boolean kind = iota
	number
	text
	numbers // a list
	texts   // a list
	other   // lists and objects that nothing here reads
)

// A key is one setting of cuFile.
type key struct {
	kind kind
	// stock is the value in NVIDIA's stock file, as in JSON.
	stock string
	// variable is the environment variable for the same.
	variable string
	// environment is set for what only a variable sets.
	environment bool
	// most is the largest number; 0 for any.
	most uint64
	// unlimited allows -1.
	unlimited bool
	// none says why no value has an effect; empty if one has.
	none string
}

// Reasons why a key has no effect.
const (
	noPool     = "Culvert has no pool of threads for requests; the ring chooses its own number"
	noBounce   = "Culvert has no bounce buffers on the GPU"
	noRDMA     = "file systems with RDMA of their own are not supported"
	automatic  = "routes are tried in order of quality; no key switches one on"
	noTopology = "nothing searches for a topology when the driver opens"
	always     = "it is always so"
	noNVTX     = "there are no NVTX marks"
)

// keys are the settings by their name with dots.
var keys = map[string]key{
	"logging.dir":              {kind: text},
	"logging.file":             {kind: text, variable: "CUFILE_LOGFILE_PATH", environment: true},
	"logging.level":            {kind: text, stock: `"ERROR"`, variable: "CUFILE_LOGGING_LEVEL"},
	"logging.max_file_size_mb": {kind: number, stock: "32", variable: "CUFILE_LOGFILE_MAX_SIZE_MB", most: 1 << 20, unlimited: true},

	"profile.nvtx":         {kind: boolean, stock: "false", variable: "CUFILE_NVTX", none: noNVTX},
	"profile.cufile_stats": {kind: number, stock: "0", most: 3},

	"execution.max_io_queue_depth":       {kind: number, stock: "128", none: noPool},
	"execution.max_io_threads":           {kind: number, stock: "4", most: 32},
	"execution.parallel_io":              {kind: boolean, stock: "true", none: noPool},
	"execution.min_io_threshold_size_kb": {kind: number, stock: "8192", none: noPool},
	"execution.max_request_parallelism":  {kind: number, stock: "4", none: noPool},

	"properties.max_direct_io_size_kb":                      {kind: number, stock: "16384", most: 16384},
	"properties.max_device_cache_size_kb":                   {kind: number, stock: "131072", variable: "CUFILE_MAX_DEVICE_CACHE_SIZE", none: noBounce},
	"properties.per_buffer_cache_size_kb":                   {kind: number, stock: "1024", variable: "CUFILE_PER_BUFFER_CACHE_SIZE", none: noBounce},
	"properties.gpu_bounce_buffer_slab_config.slab_size_kb": {kind: numbers, stock: "[1024,8192,16384,65536]", none: noBounce},
	"properties.gpu_bounce_buffer_slab_config.slab_count":   {kind: numbers, stock: "[128,8,4,2]", none: noBounce},
	"properties.max_device_pinned_mem_size_kb":              {kind: number, stock: "33554432"},
	"properties.posix_pool_slab_size_kb":                    {kind: numbers, stock: "[4,1024,16384]"},
	"properties.posix_pool_slab_count":                      {kind: numbers, stock: "[128,64,64]"},
	"properties.use_poll_mode":                              {kind: boolean, stock: "false"},
	"properties.poll_mode_max_size_kb":                      {kind: number, stock: "4"},
	"properties.allow_compat_mode":                          {kind: boolean, stock: "true", variable: "CUFILE_ALLOW_COMPAT_MODE"},
	"properties.force_compat_mode":                          {kind: boolean, stock: "false", variable: "CUFILE_FORCE_COMPAT_MODE"},
	"properties.use_pci_p2pdma":                             {kind: boolean, stock: "false", variable: "CUFILE_USE_PCIP2PDMA", none: automatic},
	"properties.force_odirect_mode":                         {kind: boolean, stock: "false"},
	"properties.prefer_iouring":                             {kind: boolean, stock: "false", none: "the ring uses io_uring where it is faster"},
	"properties.allow_system_memory":                        {kind: boolean, stock: "true", none: always},
	"properties.gds_rdma_write_support":                     {kind: boolean, stock: "true", none: noRDMA},
	"properties.io_batchsize":                               {kind: number, stock: "128", most: 256},
	"properties.max_batch_io_timeout_msecs":                 {kind: number, stock: "5", none: "batches are not polled"},
	"properties.io_priority":                                {kind: text, stock: `"default"`, variable: "CUFILE_IO_PRIORITY", none: "streams of the ring have no priority"},

	"properties.rdma_dev_addr_list":                              {kind: other, stock: "[]", none: noRDMA},
	"properties.rdma_load_balancing_policy":                      {kind: text, stock: `"RoundRobin"`, none: noRDMA},
	"properties.rdma_dynamic_routing":                            {kind: boolean, stock: "false", none: noRDMA},
	"properties.rdma_dynamic_routing_order":                      {kind: other, stock: `["GPU_MEM_NVLINKS","GPU_MEM","SYS_MEM","P2P"]`, none: noRDMA},
	"properties.rdma_dc_key":                                     {kind: other, variable: "CUFILE_RDMA_DC_KEY", none: noRDMA},
	"properties.rdma_access_mask":                                {kind: other, none: noRDMA},
	"properties.rdma_peer_type":                                  {kind: text, stock: `"peer_mem"`, none: noRDMA},
	"properties.rdma_transport_type":                             {kind: text, stock: `"DC_V1"`, none: noRDMA},
	"properties.rdma_topN_ranks":                                 {kind: number, stock: "1", none: noRDMA},
	"properties.rdma_service_level":                              {kind: number, none: noRDMA},
	"properties.vanilla_posix_io_mode":                           {kind: boolean, stock: "false", none: "staged routes need no helper library"},
	"properties.gds_fallback_io":                                 {kind: boolean, stock: "false", none: "a route that fails is followed by the next"},
	"properties.allow_rdma_token_reset":                          {kind: boolean, stock: "false", none: noRDMA},
	"properties.compat_odirect_unaligned_read_split":             {kind: boolean, stock: "false", none: always},
	"properties.compat_odirect_unaligned_read_split_min_size_kb": {kind: number, stock: "128", none: always},

	"fs.generic.posix_unaligned_writes": {kind: boolean, stock: "false", none: "unaligned ends of writes go through host memory anyway"},
	"fs.weka.rdma_write_support":        {kind: boolean, stock: "false", none: noRDMA},
	"fs.gpfs.gds_write_support":         {kind: boolean, stock: "false", none: noRDMA},
	"fs.gpfs.gds_async_support":         {kind: boolean, stock: "true", none: noRDMA},

	"sparse.p2p_compat_enable":       {kind: boolean, stock: "true", none: "holes are zeroed on every route"},
	"sparse.min_p2pdma_threshold_kb": {kind: number, stock: "8", none: "holes are zeroed on every route"},

	"miscellaneous.api_check_aggressive":    {kind: boolean, stock: "false", none: "arguments are always checked"},
	"miscellaneous.skip_topology_detection": {kind: boolean, stock: "false", variable: "CUFILE_SKIP_TOPOLOGY_DETECTION", none: noTopology},
	"miscellaneous.stream_memops_bypass":    {kind: boolean, stock: "false", variable: "CUFILE_STREAM_MEMOPS_BYPASS", none: "stream I/O needs them"},
	"miscellaneous.rcu_library_used":        {kind: other, none: noTopology},
	"miscellaneous.enable_static_routing":   {kind: boolean, stock: "false", none: noTopology},
	"miscellaneous.static_routing_filepath": {kind: text, stock: `"/etc/topology.json"`, none: noTopology},

	// Those of the environment alone have no name of NVIDIA's.
	"environment.dmabuf_enable":   {kind: boolean, variable: "CUFILE_DMABUF_ENABLE", environment: true, none: noRDMA},
	"environment.eth_sl":          {kind: number, variable: "CUFILE_ETH_SL", environment: true, none: noRDMA},
	"environment.ib_sl":           {kind: number, variable: "CUFILE_IB_SL", environment: true, none: noRDMA},
	"environment.experimental_fs": {kind: boolean, variable: "CUFILE_EXPERIMENTAL_FS", environment: true, none: "a route is tried on any file system that it can use"},
}

// aliases are other names of keys, and of the first part of a name.
var aliases = map[string]string{
	"properties.use_compat_mode":           "properties.allow_compat_mode",
	"properties.rdma_peer_affinity_policy": "properties.rdma_load_balancing_policy",
}

func init() {
	for _, fs := range strings.Fields("lustre beegfs scatefs") {
		keys["fs."+fs+".posix_gds_min_kb"] = key{kind: number, stock: "0", none: "the route of a small request depends on what is faster"}
	}
	for _, fs := range strings.Fields("lustre nfs beegfs gpfs weka scatefs") {
		keys["fs."+fs+".rdma_dev_addr_list"] = key{kind: other, stock: "[]", none: noRDMA}
		keys["fs."+fs+".mount_table"] = key{kind: other, stock: "{}", none: noRDMA}
	}
	for _, fs := range strings.Fields("lustre nfs beegfs scatefs gpfs virtiofs") {
		keys["fs."+fs+".use_pci_p2pdma"] = key{kind: boolean, stock: "false", none: automatic}
	}
	for _, block := range strings.Fields("nvme nvmeof raid raid1 raid10") {
		keys["block."+block+".use_pci_p2pdma"] = key{kind: boolean, stock: "false", none: automatic}
	}
	for _, of := range strings.Fields("drivers devices mounts filesystems fsids") {
		keys["denylist."+of] = key{kind: texts, stock: "[]"}
		aliases["blacklist."+of] = "denylist." + of
	}
}

// check reports whether a value, as in JSON, is one of the key.
func (k *key) check(v value) error {
	ok := true
	switch k.kind {
	case boolean:
		_, ok = v.boolean()
	case number:
		var n uint64
		n, ok = v.number()
		ok = ok || k.unlimited && v == "-1"
		if ok && k.most > 0 && n > k.most {
			return fmt.Errorf("%d exceeds %d", n, k.most)
		}
	case text:
		_, ok = v.text()
	case numbers:
		_, ok = v.numbers()
	case texts:
		_, ok = v.texts()
	}
	if !ok {
		return fmt.Errorf("%s is not %s", v, [...]string{"true or false", "a number", "a string", "a list of numbers", "a list of strings"}[k.kind])
	}
	return nil
}
