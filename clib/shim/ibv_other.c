/*
 * What librdmacm, libmlx5 and libefa import, and programs that link them need: the
 * loader resolves every name. They drive real adapters, of which there is none here, so
 * that nothing calls these functions: those that do get an error, and a line on
 * standard error.
 */
#include "verbs_local.h"

/* The drivers of real adapters register when they are loaded. None is used. */
CULVERT_EXPORT void verbs_register_driver_34(const void *ops);
CULVERT_EXPORT void verbs_register_driver_34(const void *ops)
{
	(void)ops;
}

CULVERT_EXPORT bool verbs_allow_disassociate_destroy;

/* A function that returns an errno, or an object. */
#define ERRNO(name) CULVERT_MISSING(name, EOPNOTSUPP)
#define OBJECT(name)                             \
	CULVERT_EXPORT void *name(void);         \
	CULVERT_EXPORT void *name(void)          \
	{                                        \
		static atomic_flag said = ATOMIC_FLAG_INIT; \
		culvert_missing(#name, &said);   \
		return fail(EOPNOTSUPP);         \
	}

/* Public functions without an implementation. */
ERRNO(ibv_attach_mcast)
OBJECT(ibv_create_ah_from_wc)
ERRNO(ibv_detach_mcast)
ERRNO(ibv_dofork_range)
ERRNO(ibv_dontfork_range)
OBJECT(ibv_import_device)
OBJECT(ibv_import_dm)
OBJECT(ibv_import_mr)
OBJECT(ibv_import_pd)
ERRNO(ibv_init_ah_from_wc)
ERRNO(ibv_query_ece)
ERRNO(ibv_rereg_mr)
ERRNO(ibv_resolve_eth_l2_from_gid)
ERRNO(ibv_set_ece)
ERRNO(ibv_unimport_dm)
ERRNO(ibv_unimport_mr)
ERRNO(ibv_unimport_pd)
ERRNO(ibv_copy_ah_attr_from_kern)
ERRNO(ibv_copy_path_rec_from_kern)
ERRNO(ibv_copy_path_rec_to_kern)
ERRNO(ibv_copy_qp_attr_from_kern)

/* 0: nothing is promised about the order of bytes inside of a message. */
CULVERT_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, int op, uint32_t flags);
CULVERT_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, int op, uint32_t flags)
{
	(void)qp, (void)op, (void)flags;
	return 0;
}

/* Private functions of rdma-core, for its drivers. */
OBJECT(_verbs_init_and_alloc_context)
OBJECT(verbs_open_device)
ERRNO(__ioctl_final_num_attrs)
ERRNO(__verbs_log)
ERRNO(execute_ioctl)
ERRNO(ibv_cmd_advise_mr)
ERRNO(ibv_cmd_alloc_dm)
ERRNO(ibv_cmd_alloc_mw)
ERRNO(ibv_cmd_alloc_pd)
ERRNO(ibv_cmd_attach_mcast)
ERRNO(ibv_cmd_close_xrcd)
ERRNO(ibv_cmd_create_ah)
ERRNO(ibv_cmd_create_counters)
ERRNO(ibv_cmd_create_cq)
ERRNO(ibv_cmd_create_cq_ex)
ERRNO(ibv_cmd_create_flow)
ERRNO(ibv_cmd_create_flow_action_esp)
ERRNO(ibv_cmd_create_qp)
ERRNO(ibv_cmd_create_qp_ex)
ERRNO(ibv_cmd_create_qp_ex2)
ERRNO(ibv_cmd_create_rwq_ind_table)
ERRNO(ibv_cmd_create_srq)
ERRNO(ibv_cmd_create_srq_ex)
ERRNO(ibv_cmd_create_wq)
ERRNO(ibv_cmd_dealloc_mw)
ERRNO(ibv_cmd_dealloc_pd)
ERRNO(ibv_cmd_dereg_mr)
ERRNO(ibv_cmd_destroy_ah)
ERRNO(ibv_cmd_destroy_counters)
ERRNO(ibv_cmd_destroy_cq)
ERRNO(ibv_cmd_destroy_flow)
ERRNO(ibv_cmd_destroy_flow_action)
ERRNO(ibv_cmd_destroy_qp)
ERRNO(ibv_cmd_destroy_rwq_ind_table)
ERRNO(ibv_cmd_destroy_srq)
ERRNO(ibv_cmd_destroy_wq)
ERRNO(ibv_cmd_detach_mcast)
ERRNO(ibv_cmd_free_dm)
ERRNO(ibv_cmd_get_context)
ERRNO(ibv_cmd_modify_cq)
ERRNO(ibv_cmd_modify_flow_action_esp)
ERRNO(ibv_cmd_modify_qp)
ERRNO(ibv_cmd_modify_qp_ex)
ERRNO(ibv_cmd_modify_srq)
ERRNO(ibv_cmd_modify_wq)
ERRNO(ibv_cmd_open_qp)
ERRNO(ibv_cmd_open_xrcd)
ERRNO(ibv_cmd_poll_cq)
ERRNO(ibv_cmd_post_recv)
ERRNO(ibv_cmd_post_send)
ERRNO(ibv_cmd_post_srq_recv)
ERRNO(ibv_cmd_query_context)
ERRNO(ibv_cmd_query_device_any)
ERRNO(ibv_cmd_query_mr)
ERRNO(ibv_cmd_query_port)
ERRNO(ibv_cmd_query_qp)
ERRNO(ibv_cmd_query_srq)
ERRNO(ibv_cmd_read_counters)
ERRNO(ibv_cmd_reg_dm_mr)
ERRNO(ibv_cmd_reg_dmabuf_mr)
ERRNO(ibv_cmd_reg_mr)
ERRNO(ibv_cmd_req_notify_cq)
ERRNO(ibv_cmd_rereg_mr)
ERRNO(ibv_cmd_resize_cq)
ERRNO(ibv_read_ibdev_sysfs_file)
ERRNO(verbs_init_cq)
ERRNO(verbs_set_ops)
ERRNO(verbs_uninit_context)
