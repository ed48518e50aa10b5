package rdmacm

import (
	"os"
	"testing"

	"github.com/culvert-io/culvert/internal/abi/cproof"
)

const header = `
#include <linux/in6.h>
#include <linux/socket.h>
#include <rdma/rdma_user_cm.h>
`

func TestLayoutsAgainstC(t *testing.T) {
	if _, err := os.Stat("/usr/include/rdma/rdma_user_cm.h"); err != nil {
		t.Skipf("needs the kernel's headers (package linux-libc-dev): %v", err)
	}
	cproof.Check(t, header, []cproof.Layout{
		{C: "struct rdma_ucm_cmd_hdr", Members: "cmd in out", Go: Header{}},
		{C: "struct rdma_ucm_create_id", Members: "uid response ps qp_type", Go: CreateID{}},
		{C: "struct rdma_ucm_create_id_resp", Members: "id", Go: ID{}},
		{C: "struct rdma_ucm_destroy_id", Members: "response id", Go: DestroyID{}},
		{C: "struct rdma_ucm_bind_ip", Members: "response addr id", Go: BindIP{}},
		{C: "struct rdma_ucm_listen", Members: "id backlog", Go: Listen{}},
		{C: "struct rdma_ucm_reject", Members: "id private_data_len reason private_data", Go: Reject{}},
		{C: "struct rdma_ucm_migrate_id", Members: "response id fd", Go: MigrateID{}},
		{C: "struct rdma_ucm_resolve_ip", Members: "src_addr dst_addr id timeout_ms", Go: ResolveIP{}},
		{C: "struct rdma_ucm_resolve_route", Members: "id timeout_ms", Go: ResolveRoute{}},
		{C: "struct rdma_ucm_conn_param", Members: "qp_num qkey private_data private_data_len srq responder_resources initiator_depth flow_control retry_count rnr_retry_count valid", Go: ConnParam{}},
		{C: "struct rdma_ucm_connect", Members: "conn_param id ece", Go: Connect{}},
		{C: "struct rdma_ucm_accept", Members: "uid conn_param id ece", Go: Accept{}},
		{C: "struct rdma_ucm_disconnect", Members: "id", Go: Disconnect{}},
		{C: "struct rdma_ucm_init_qp_attr", Members: "response id qp_state", Go: InitQPAttr{}},
		{C: "struct rdma_ucm_query", Members: "response id option", Go: Query{}},
		{C: "struct rdma_ucm_query_addr_resp", Members: "node_guid port_num pkey src_size dst_size src_addr dst_addr ibdev_index", Go: Addresses{}},
		{C: "struct rdma_ucm_get_event", Members: "response", Go: GetEvent{}},
		{C: "struct rdma_ucm_event_resp", Members: "uid id event status param ece", Go: Event{}},
		{C: "struct ib_uverbs_ah_attr", Members: "grh.dgid grh.flow_label grh.sgid_index grh.hop_limit grh.traffic_class dlid sl src_path_bits static_rate is_global port_num", Go: AH{}},
		{C: "struct ib_uverbs_qp_attr", Members: "qp_attr_mask qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags ah_attr alt_ah_attr max_send_wr " +
			"pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout", Go: QPAttr{}},
	})
	cproof.Numbers(t, header, map[string]uint64{
		"RDMA_USER_CM_CMD_CREATE_ID + 1": CREATE_ID + 1,
		"RDMA_USER_CM_CMD_DESTROY_ID":    DESTROY_ID,
		"RDMA_USER_CM_CMD_BIND_IP":       BIND_IP,
		"RDMA_USER_CM_CMD_LISTEN":        LISTEN,
		"RDMA_USER_CM_CMD_REJECT":        REJECT,
		"RDMA_USER_CM_CMD_MIGRATE_ID":    MIGRATE_ID,
		"RDMA_USER_CM_CMD_RESOLVE_IP":    RESOLVE_IP,
		"RDMA_USER_CM_CMD_RESOLVE_ROUTE": RESOLVE_ROUTE,
		"RDMA_USER_CM_CMD_CONNECT":       CONNECT,
		"RDMA_USER_CM_CMD_ACCEPT":        ACCEPT,
		"RDMA_USER_CM_CMD_DISCONNECT":    DISCONNECT,
		"RDMA_USER_CM_CMD_INIT_QP_ATTR":  INIT_QP_ATTR,
		"RDMA_USER_CM_CMD_GET_EVENT":     GET_EVENT,
		"RDMA_USER_CM_CMD_QUERY":         QUERY,
		"RDMA_USER_CM_QUERY_ADDR + 1":    QUERY_ADDR + 1,
		"RDMA_PS_TCP":                    PS_TCP,
	})
}
