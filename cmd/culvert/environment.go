package main

import "github.com/spf13/cobra"

// newEnvironment is a page of help: what is not on the command line.
func newEnvironment() *cobra.Command {
	return &cobra.Command{
		Use:   "environment",
		Short: "List the variables, files and sockets that Culvert uses",
		Long: `The variables that change what commands and libraries do, and what they leave on
this computer. A program with more rights than its caller ignores all of them.

ENVIRONMENT
  CULVERT_MACHINE        auto, real or soft: the real machine if it has a GPU
                         (default), only the real one, the software machine
  CULVERT_SOFT           parts of the software machine: gpus=2,memory=1G,nics=1,
                         drive=nvme-rdma, stack=crypt, poison=1
  CULVERT_SHARED         file by which processes share soft GPUs; run sets it
  CULVERT_ROUTES         switch routes off: -bar,-ring
  CULVERT_NVFS           1: use route nvfs on a real machine
  CULVERT_LOG            errors: log failed calls; phases: time loads
  CULVERT_FAULT          break the software machine: errno=EIO,call=read,nth=3
  CULVERT_LIB            directory of the C libraries for run
  CULVERT_LIBCUDA        path of NVIDIA's libcuda.so.1
  CULVERT_LIBIBVERBS     path of libibverbs.so.1
  CULVERT_RDMA_PROVIDER  tcp, soft or ibverbs: what moves data between hosts
  CULVERT_RDMA_TOKEN     secret of both ends of rdma and cp rdma://
  CULVERT_OBJECT_CONNECTIONS, CULVERT_OBJECT_RATE, CULVERT_OBJECT_ATTEMPTS
                         limits of requests to object stores
  CULVERT_S3_ANONYMOUS, CULVERT_S3_STYLE
                         unsigned requests; path or virtual style. Keys and
                         region are where AWS's tools look for them
  CULVERT_TENSORS        Python: the device of tensors of the software machine
  CULVERT_RUN_DIR, CULVERT_WATCHED, CULVERT_TRACE_DIR
                         set by run for the program that it watches
  CUFILE_ENV_PATH_JSON   cufile.json of the C library (default /etc/cufile.json)
  XDG_CACHE_HOME, HOME   where the tune cache is
  NO_COLOR, TERM, LC_ALL, LC_CTYPE, LANG
                         colours, progress and characters of the output

FILES
  ~/.cache/culvert/tune.json    what was measured: culvert tune --show, --clear
  FILE.culvert.json             checksums of a saved model
  DEST/.culvert-cp.journal      finished files of an unfinished directory copy
  .NAME.culvert-part            unfinished copy of a large file, to be resumed
  .NAME.XXXXXXXX.culvert-tmp    file being written; removed by a later run
  the path after load --hold    socket of a held model
  a System V segment per process, statistics: culvert stats (ipcs -m lists them)

EXIT STATUS
  0  the list was printed`,
		Example: `  culvert environment
  CULVERT_MACHINE=soft culvert check model.safetensors gpu:0`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}
