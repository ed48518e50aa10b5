package main

// verbs is what the software machine's libibverbs.so.1 asks of the Go core. Its exported
// functions return structs with pointers to functions, which only C can make: they are
// written by hand in shim/ibv_*.c.
var verbs = Library{
	Name:    "verbs",
	Prefix:  "culvert_ibv_",
	Field:   "Verbs",
	Private: true,
	Results: map[string]Result{
		"int":     {Go: "errnoStatus", Fail: "ENODEV", C: "(int)%s"},
		"ssize_t": {Go: "errnoCount", Fail: "-1", Errno: "ENODEV", C: "(ssize_t)%s"},
	},
	Funcs: []Func{
		{Decl: "ssize_t culvert_ibv_devices(struct culvert_ibv_device *list, int room)", Go: "Devices"},
		{Decl: "ssize_t culvert_ibv_read_file(const char *dir, const char *file, char *buf, size_t size)", Go: "ReadFile"},
		{Decl: "int culvert_ibv_open(const char *name, culvert_id *dev)", Go: "Open"},
		{Decl: "int culvert_ibv_close(culvert_id dev)", Go: "Close"},
		{Decl: "int culvert_ibv_query_device(culvert_id dev, struct ibv_device_attr *attr)", Go: "QueryDevice"},
		{Decl: "int culvert_ibv_query_port(culvert_id dev, int port, struct ibv_port_attr *attr)", Go: "QueryPort"},
		{Decl: "ssize_t culvert_ibv_query_gids(culvert_id dev, int port, struct ibv_gid_entry *list, size_t room)", Go: "QueryGIDs"},

		{Decl: "int culvert_ibv_alloc_pd(culvert_id dev, culvert_id *pd)", Go: "AllocPD"},
		{Decl: "int culvert_ibv_dealloc_pd(culvert_id pd)", Go: "DeallocPD"},
		{Decl: "int culvert_ibv_reg_mr(culvert_id pd, uint64_t addr, uint64_t size, uint64_t iova, uint32_t access, culvert_id *mr, uint32_t *key)", Go: "RegMR"},
		{Decl: "int culvert_ibv_reg_dmabuf(culvert_id pd, uint64_t offset, uint64_t size, uint64_t iova, int fd, uint32_t access, culvert_id *mr, uint32_t *key)", Go: "RegDMABuf"},
		{Decl: "int culvert_ibv_dereg_mr(culvert_id mr)", Go: "DeregMR"},

		{Decl: "int culvert_ibv_create_channel(culvert_id *channel, int *fd)", Go: "CreateChannel"},
		{Decl: "int culvert_ibv_destroy_channel(culvert_id channel)", Go: "DestroyChannel"},
		{Decl: "int culvert_ibv_create_cq(culvert_id dev, int cqe, culvert_id channel, culvert_id *cq)", Go: "CreateCQ"},
		{Decl: "int culvert_ibv_destroy_cq(culvert_id cq)", Go: "DestroyCQ"},
		{Decl: "ssize_t culvert_ibv_poll_cq(culvert_id cq, int room, struct ibv_wc *list)", Go: "PollCQ"},
		{Decl: "int culvert_ibv_arm_cq(culvert_id cq, int solicited)", Go: "ArmCQ"},

		{Decl: "int culvert_ibv_create_qp(culvert_id pd, culvert_id send_cq, culvert_id recv_cq, struct ibv_qp_cap *cap, int signal_all, culvert_id *qp, uint32_t *num)", Go: "CreateQP"},
		{Decl: "int culvert_ibv_modify_qp(culvert_id qp, const struct ibv_qp_attr *attr, uint32_t mask)", Go: "ModifyQP"},
		{Decl: "ssize_t culvert_ibv_qp_state(culvert_id qp)", Go: "QPState"},
		{Decl: "int culvert_ibv_destroy_qp(culvert_id qp)", Go: "DestroyQP"},
		{Decl: "int culvert_ibv_post_send(culvert_id qp, struct ibv_send_wr *wr?, struct ibv_send_wr **bad)", Go: "PostSend"},
		{Decl: "int culvert_ibv_post_recv(culvert_id qp, struct ibv_recv_wr *wr?, struct ibv_recv_wr **bad)", Go: "PostRecv"},
	},
}
