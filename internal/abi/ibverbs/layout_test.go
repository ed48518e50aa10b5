package ibverbs

import (
	"testing"
	"unsafe"

	"github.com/culvert-io/culvert/internal/abi/cproof"
)

// header is Debian's libibverbs-dev where it is installed (or in a directory of CPATH),
// and otherwise the structs once more.
const header = `
#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#else
#include <pthread.h>
struct ibv_sge { uint64_t addr; uint32_t length, lkey; };
struct ibv_send_wr { uint64_t wr_id; void *next, *sg_list; int num_sge, opcode; unsigned send_flags; uint32_t imm_data;
	union { struct { uint64_t remote_addr; uint32_t rkey; } rdma;
		struct { uint64_t remote_addr, compare_add, swap; uint32_t rkey; } atomic; } wr;
	union { struct { uint32_t remote_srqn; } xrc; } qp_type;
	union { struct { void *mw; uint32_t rkey; struct { void *mr; uint64_t addr, length; unsigned flags; } bind_info; } bind_mw; }; };
struct ibv_recv_wr { uint64_t wr_id; void *next, *sg_list; int num_sge; };
struct ibv_wc { uint64_t wr_id; int status, opcode; uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp;
	unsigned wc_flags; uint16_t pkey_index, slid; uint8_t sl, dlid_path_bits; };
struct ibv_mr { void *context, *pd, *addr; size_t length; uint32_t handle, lkey, rkey; };
struct ibv_comp_channel { void *context; int fd, refcnt; };
struct ibv_context_ops { void *_compat0[11]; void *poll_cq, *req_notify_cq; void *_compat1[12]; void *post_send, *post_recv; void *_compat2[5]; };
struct ibv_context { void *device; struct ibv_context_ops ops; int cmd_fd, async_fd, num_comp_vectors; pthread_mutex_t mutex; void *abi_compat; };
struct ibv_qp { void *context, *qp_context, *pd, *send_cq, *recv_cq, *srq; uint32_t handle, qp_num; int state, qp_type;
	pthread_mutex_t mutex; pthread_cond_t cond; uint32_t events_completed; };
struct ibv_async_event { union { void *cq; int port_num; } element; int event_type; };
struct ibv_qp_cap { uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data; };
struct ibv_qp_init_attr { void *qp_context, *send_cq, *recv_cq, *srq; struct ibv_qp_cap cap; int qp_type, sq_sig_all; };
union ibv_gid { uint8_t raw[16]; struct { uint64_t subnet_prefix, interface_id; } global; };
struct ibv_global_route { union ibv_gid dgid; uint32_t flow_label; uint8_t sgid_index, hop_limit, traffic_class; };
struct ibv_ah_attr { struct ibv_global_route grh; uint16_t dlid; uint8_t sl, src_path_bits, static_rate, is_global, port_num; };
struct ibv_qp_attr { int qp_state, cur_qp_state, path_mtu, path_mig_state; uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
	unsigned qp_access_flags; struct ibv_qp_cap cap; struct ibv_ah_attr ah_attr, alt_ah_attr; uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt,
	rnr_retry, alt_port_num, alt_timeout; uint32_t rate_limit; };
struct ibv_gid_entry { union ibv_gid gid; uint32_t gid_index, port_num, gid_type, ndev_ifindex; };
struct ibv_port_attr { int state, max_mtu, active_mtu, gid_tbl_len; uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
	uint16_t pkey_tbl_len, lid, sm_lid; uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed,
	phys_state, link_layer, flags; uint16_t port_cap_flags2; };
struct ibv_device_attr { char fw_ver[64]; uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
	uint32_t vendor_id, vendor_part_id, hw_ver; int max_qp, max_qp_wr; unsigned device_cap_flags;
	int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom,
	max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach,
	max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge;
	uint16_t max_pkeys; uint8_t local_ca_ack_delay, phys_port_cnt; };
enum { IBV_QPT_RC = 2, IBV_EVENT_CQ_ERR = 0, IBV_EVENT_DEVICE_FATAL = 8 };
#endif
`

func TestLayoutsAgainstC(t *testing.T) {
	cproof.Check(t, header, []cproof.Layout{
		{C: "struct ibv_send_wr", Members: "wr_id next sg_list num_sge opcode send_flags imm_data wr qp_type", Go: SendWR{}},
		{C: "struct ibv_recv_wr", Members: "wr_id next sg_list num_sge", Go: RecvWR{}},
		{C: "struct ibv_sge", Members: "addr length lkey", Go: SGE{}},
		{C: "struct ibv_wc", Members: "wr_id status opcode vendor_err byte_len imm_data qp_num src_qp wc_flags pkey_index slid sl dlid_path_bits", Go: WC{}},
		{C: "struct ibv_mr", Members: "context pd addr length handle lkey rkey", Go: MR{}},
		{C: "struct ibv_comp_channel", Members: "context fd refcnt", Go: CompChannel{}},
		{C: "struct ibv_async_event", Members: "element event_type", Go: AsyncEvent{}},
		{C: "struct ibv_qp_cap", Members: "max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data", Go: QPCap{}},
		{C: "struct ibv_qp_init_attr", Members: "qp_context send_cq recv_cq srq cap qp_type sq_sig_all", Go: QPInitAttr{}},
		{C: "struct ibv_global_route", Members: "dgid flow_label sgid_index hop_limit traffic_class", Go: GlobalRoute{}},
		{C: "struct ibv_ah_attr", Members: "grh dlid sl src_path_bits static_rate is_global port_num", Go: AHAttr{}},
		{C: "struct ibv_qp_attr", Members: "qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags cap ah_attr alt_ah_attr " +
			"pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt " +
			"rnr_retry alt_port_num alt_timeout rate_limit", Go: QPAttr{}},
		{C: "struct ibv_gid_entry", Members: "gid gid_index port_num gid_type ndev_ifindex", Go: GIDEntry{}},
		{C: "struct ibv_device_attr", Members: "fw_ver node_guid sys_image_guid max_mr_size page_size_cap vendor_id vendor_part_id hw_ver max_qp max_qp_wr " +
			"device_cap_flags max_sge max_sge_rd max_cq max_cqe max_mr max_pd max_qp_rd_atom max_res_rd_atom max_qp_init_rd_atom atomic_cap " +
			"max_pkeys local_ca_ack_delay phys_port_cnt", Go: DeviceAttr{}},
	})
}

// TestHeadsAgainstC checks structs that go on where ours end, or may grow.
func TestHeadsAgainstC(t *testing.T) {
	var port PortAttr
	var ctx ContextHead
	var qp QPHead
	var wr SendWR
	remote := uint64(unsafe.Offsetof(wr.Remote))
	cproof.Numbers(t, header, map[string]uint64{
		"offsetof(struct ibv_context, ops.poll_cq)":           ContextPollCQ,
		"offsetof(struct ibv_context, ops.req_notify_cq)":     ContextReqNotifyCQ,
		"offsetof(struct ibv_context, ops.post_send)":         ContextPostSend,
		"offsetof(struct ibv_context, ops.post_recv)":         ContextPostRecv,
		"offsetof(struct ibv_context, cmd_fd)":                uint64(unsafe.Offsetof(ctx.CmdFD)),
		"offsetof(struct ibv_context, async_fd)":              uint64(unsafe.Offsetof(ctx.AsyncFD)),
		"offsetof(struct ibv_context, num_comp_vectors)":      uint64(unsafe.Offsetof(ctx.CompVectors)),
		"offsetof(struct ibv_qp, handle)":                     uint64(unsafe.Offsetof(qp.Handle)),
		"offsetof(struct ibv_qp, qp_num)":                     uint64(unsafe.Offsetof(qp.Num)),
		"offsetof(struct ibv_qp, state)":                      uint64(unsafe.Offsetof(qp.State)),
		"offsetof(struct ibv_qp, qp_type)":                    uint64(unsafe.Offsetof(qp.Type)),
		"offsetof(struct ibv_port_attr, gid_tbl_len)":         uint64(unsafe.Offsetof(port.GIDTableLen)),
		"offsetof(struct ibv_port_attr, max_msg_sz)":          uint64(unsafe.Offsetof(port.MaxMsg)),
		"offsetof(struct ibv_port_attr, lid)":                 uint64(unsafe.Offsetof(port.LID)),
		"offsetof(struct ibv_port_attr, active_width)":        uint64(unsafe.Offsetof(port.Width)),
		"offsetof(struct ibv_port_attr, active_speed)":        uint64(unsafe.Offsetof(port.Speed)),
		"offsetof(struct ibv_port_attr, link_layer)":          uint64(unsafe.Offsetof(port.Link)),
		"offsetof(struct ibv_port_attr, flags)":               uint64(unsafe.Offsetof(port.Flags)),
		"sizeof(struct ibv_port_attr) <= 128":                 1,
		"offsetof(struct ibv_send_wr, wr.rdma.remote_addr)":   remote,
		"offsetof(struct ibv_send_wr, wr.rdma.rkey)":          remote + 8,
		"offsetof(struct ibv_send_wr, wr.atomic.compare_add)": remote + 8,
		"offsetof(struct ibv_send_wr, wr.atomic.swap)":        remote + 16,
		"offsetof(struct ibv_send_wr, wr.atomic.rkey)":        remote + 24,
		"IBV_QPT_RC":             QPTypeRC,
		"IBV_EVENT_CQ_ERR + 1":   EventCQErr + 1,
		"IBV_EVENT_DEVICE_FATAL": EventDeviceFatal,
	})
}
