/*
 * Sizes and offsets of what programs and libibverbs share. It compiles with our header
 * and with that of rdma-core, and must print the same.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#define S(t) printf("%s %zu\n", #t, sizeof(t))
#define O(t, f) printf("%s.%s %zu\n", #t, #f, offsetof(t, f))

int main(void)
{
	S(struct ibv_device);
	S(struct ibv_context);
	S(struct verbs_context);
	S(struct ibv_pd);
	S(struct ibv_mr);
	S(struct ibv_comp_channel);
	S(struct ibv_cq);
	S(struct ibv_cq_ex);
	S(struct ibv_qp);
	S(struct ibv_srq);
	S(struct ibv_ah);
	S(struct ibv_sge);
	S(struct ibv_wc);
	S(struct ibv_send_wr);
	S(struct ibv_recv_wr);
	S(struct ibv_qp_cap);
	S(struct ibv_qp_init_attr);
	S(struct ibv_qp_init_attr_ex);
	S(struct ibv_gid_entry);
	S(struct ibv_global_route);
	S(struct ibv_ah_attr);
	S(struct ibv_qp_attr);
	S(struct ibv_port_attr);
	S(struct ibv_device_attr);
	S(struct ibv_device_attr_ex);
	S(struct ibv_async_event);
	S(struct ibv_qp_ex);
	S(struct ibv_cq_init_attr_ex);
	S(struct ibv_srq_init_attr);
	O(struct ibv_context, ops.alloc_mw);
	O(struct ibv_context, ops.poll_cq);
	O(struct ibv_context, ops.req_notify_cq);
	O(struct ibv_context, ops.post_srq_recv);
	O(struct ibv_context, ops.post_send);
	O(struct ibv_context, ops.post_recv);
	O(struct ibv_context, async_fd);
	O(struct ibv_context, num_comp_vectors);
	O(struct ibv_context, abi_compat);
	O(struct verbs_context, query_port);
	O(struct verbs_context, advise_mr);
	O(struct verbs_context, modify_cq);
	O(struct verbs_context, query_rt_values);
	O(struct verbs_context, create_cq_ex);
	O(struct verbs_context, priv);
	O(struct verbs_context, query_device_ex);
	O(struct verbs_context, open_qp);
	O(struct verbs_context, create_qp_ex);
	O(struct verbs_context, get_srq_num);
	O(struct verbs_context, create_srq_ex);
	O(struct verbs_context, sz);
	O(struct verbs_context, context);
	O(struct ibv_cq_ex, status);
	O(struct ibv_cq_ex, wr_id);
	O(struct ibv_cq_ex, start_poll);
	O(struct ibv_cq_ex, read_opcode);
	O(struct ibv_cq_ex, read_completion_wallclock_ns);
	O(struct ibv_qp_ex, wr_id);
	O(struct ibv_qp_ex, wr_flags);
	O(struct ibv_qp_ex, wr_rdma_read);
	O(struct ibv_qp_ex, wr_send_imm);
	O(struct ibv_qp_ex, wr_set_inline_data);
	O(struct ibv_qp_ex, wr_set_sge_list);
	O(struct ibv_qp_ex, wr_start);
	O(struct ibv_qp_ex, wr_complete);
	O(struct ibv_qp_ex, wr_abort);
	O(struct ibv_device, node_type);
	O(struct ibv_device, name);
	O(struct ibv_device, ibdev_path);
	O(struct ibv_send_wr, imm_data);
	O(struct ibv_send_wr, wr.rdma.rkey);
	O(struct ibv_send_wr, wr.atomic.compare_add);
	O(struct ibv_send_wr, wr.atomic.swap);
	O(struct ibv_send_wr, wr.atomic.rkey);
	O(struct ibv_send_wr, wr.ud.remote_qkey);
	O(struct ibv_wc, imm_data);
	O(struct ibv_wc, wc_flags);
	O(struct ibv_wc, slid);
	O(struct ibv_wc, dlid_path_bits);
	O(struct ibv_qp_attr, cap);
	O(struct ibv_qp_attr, ah_attr);
	O(struct ibv_qp_attr, ah_attr.dlid);
	O(struct ibv_qp_attr, ah_attr.is_global);
	O(struct ibv_qp_attr, pkey_index);
	O(struct ibv_qp_attr, max_rd_atomic);
	O(struct ibv_qp_attr, port_num);
	O(struct ibv_qp_attr, timeout);
	O(struct ibv_qp_attr, rnr_retry);
	O(struct ibv_qp_attr, rate_limit);
	O(struct ibv_device_attr, node_guid);
	O(struct ibv_device_attr, max_qp);
	O(struct ibv_device_attr, atomic_cap);
	O(struct ibv_device_attr, max_ah);
	O(struct ibv_device_attr, max_srq);
	O(struct ibv_device_attr, phys_port_cnt);
	O(struct ibv_port_attr, gid_tbl_len);
	O(struct ibv_port_attr, lid);
	O(struct ibv_port_attr, link_layer);
	O(struct ibv_port_attr, port_cap_flags2);
	O(struct ibv_qp_init_attr_ex, comp_mask);
	O(struct ibv_qp_init_attr_ex, pd);
	O(struct ibv_qp_init_attr_ex, send_ops_flags);
	O(struct ibv_cq_init_attr_ex, channel);
	O(struct ibv_cq_init_attr_ex, wc_flags);
	O(struct ibv_cq_init_attr_ex, comp_mask);
	printf("%d %d %d %d\n", IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_GENERAL_ERR, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_EVENT_GID_CHANGE);
	return 0;
}
