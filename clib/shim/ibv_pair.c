/* Queue pairs of libibverbs. */
#include "verbs_local.h"

#include <stdlib.h>

/* Requests that are built field by field, between wr_start and wr_complete. */
struct build {
	struct ibv_send_wr *wrs;
	struct ibv_sge *sges; /* cap.max_send_sge for each request */
	char *data;           /* cap.max_inline_data for each request */
	uint32_t n;
	int err;
};

struct culvert_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex ex;
	};
	culvert_id id;
	struct ibv_qp_attr attr; /* as modified */
	struct ibv_qp_init_attr init;
	struct build build;
	int extended;
};

static culvert_id qp_id(struct ibv_qp *qp)
{
	return ((struct culvert_qp *)qp)->id;
}

static struct culvert_qp *create(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	if (a->qp_type != IBV_QPT_RC || a->srq)
		return fail(EOPNOTSUPP);
	if (!a->send_cq || !a->recv_cq)
		return fail(EINVAL);
	struct culvert_qp *q = calloc(1, sizeof *q);
	if (!q)
		return fail(ENOMEM);
	int err = culvert_ibv_create_qp(pd_id(pd), culvert_cq_id(a->send_cq), culvert_cq_id(a->recv_cq), &a->cap, a->sq_sig_all, &q->id, &q->qp.qp_num);
	if (err) {
		free(q);
		return fail(err);
	}
	q->init = *a;
	q->attr.cap = a->cap;
	q->qp.context = pd->context;
	q->qp.qp_context = a->qp_context;
	q->qp.pd = pd;
	q->qp.send_cq = a->send_cq;
	q->qp.recv_cq = a->recv_cq;
	q->qp.state = IBV_QPS_RESET;
	q->qp.qp_type = a->qp_type;
	pthread_mutex_init(&q->qp.mutex, NULL);
	pthread_cond_init(&q->qp.cond, NULL);
	return q;
}

CULVERT_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct culvert_qp *q = create(pd, attr);
	return q ? &q->qp : NULL;
}

CULVERT_EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct culvert_qp *q = (struct culvert_qp *)qp;
	int err = culvert_ibv_destroy_qp(q->id);
	if (err)
		return err;
	pthread_mutex_destroy(&qp->mutex);
	pthread_cond_destroy(&qp->cond);
	free(q->build.wrs);
	free(q->build.sges);
	free(q->build.data);
	free(q);
	return 0;
}

/* keep remembers attributes for ibv_query_qp. */
static void keep(struct ibv_qp_attr *to, const struct ibv_qp_attr *a, int mask)
{
#define KEEP(bit, field)   \
	if (mask & (bit)) \
		to->field = a->field;
	KEEP(IBV_QP_ACCESS_FLAGS, qp_access_flags)
	KEEP(IBV_QP_PKEY_INDEX, pkey_index)
	KEEP(IBV_QP_PORT, port_num)
	KEEP(IBV_QP_AV, ah_attr)
	KEEP(IBV_QP_PATH_MTU, path_mtu)
	KEEP(IBV_QP_TIMEOUT, timeout)
	KEEP(IBV_QP_RETRY_CNT, retry_cnt)
	KEEP(IBV_QP_RNR_RETRY, rnr_retry)
	KEEP(IBV_QP_RQ_PSN, rq_psn)
	KEEP(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic)
	KEEP(IBV_QP_MIN_RNR_TIMER, min_rnr_timer)
	KEEP(IBV_QP_SQ_PSN, sq_psn)
	KEEP(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic)
	KEEP(IBV_QP_DEST_QPN, dest_qp_num)
#undef KEEP
}

CULVERT_EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct culvert_qp *q = (struct culvert_qp *)qp;
	int err = culvert_ibv_modify_qp(q->id, attr, (uint32_t)mask);
	if (err)
		return err;
	keep(&q->attr, attr, mask);
	if (mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	return 0;
}

CULVERT_EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct culvert_qp *q = (struct culvert_qp *)qp;
	(void)mask; /* everything is known */
	ssize_t state = culvert_ibv_qp_state(q->id);
	if (state < 0)
		return errno;
	qp->state = (enum ibv_qp_state)state;
	*attr = q->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	if (init)
		*init = q->init;
	return 0;
}

int culvert_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct ibv_send_wr *first;
	return culvert_ibv_post_send(qp_id(qp), wr, bad ? bad : &first);
}

int culvert_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct ibv_recv_wr *first;
	return culvert_ibv_post_recv(qp_id(qp), wr, bad ? bad : &first);
}

CULVERT_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct culvert_qp *q = (struct culvert_qp *)qp;
	return q->extended ? &q->ex : NULL;
}

/* begin starts a request. Errors are reported by wr_complete. */
static struct ibv_send_wr *begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode op)
{
	static _Thread_local struct ibv_send_wr spare;
	struct culvert_qp *q = (struct culvert_qp *)ex;
	struct build *b = &q->build;
	if (b->n == q->init.cap.max_send_wr) {
		b->err = ENOMEM;
		return &spare;
	}
	struct ibv_send_wr *wr = &b->wrs[b->n];
	memset(wr, 0, sizeof *wr);
	wr->wr_id = ex->wr_id;
	wr->send_flags = ex->wr_flags;
	wr->opcode = op;
	wr->sg_list = &b->sges[(size_t)b->n * q->init.cap.max_send_sge];
	b->n++;
	return wr;
}

static void wr_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr, __be32 imm)
{
	struct ibv_send_wr *wr = begin(ex, op);
	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = addr;
	wr->imm_data = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr) { wr_rdma(ex, IBV_WR_RDMA_READ, rkey, addr, 0); }
static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr) { wr_rdma(ex, IBV_WR_RDMA_WRITE, rkey, addr, 0); }
static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm) { wr_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm); }
static void wr_send(struct ibv_qp_ex *ex) { begin(ex, IBV_WR_SEND); }
static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm) { begin(ex, IBV_WR_SEND_WITH_IMM)->imm_data = imm; }

static void wr_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr, uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *wr = begin(ex, op);
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	wr_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
	wr_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
	struct culvert_qp *q = (struct culvert_qp *)ex;
	struct build *b = &q->build;
	if (b->n == 0 || n > q->init.cap.max_send_sge) {
		b->err = EINVAL;
		return;
	}
	struct ibv_send_wr *wr = &b->wrs[b->n - 1];
	memcpy(wr->sg_list, list, n * sizeof *list);
	wr->num_sge = (int)n;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {addr, length, lkey};
	wr_set_sge_list(ex, 1, &sge);
}

/* The data is copied at once, so that the program can reuse its memory. */
static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list)
{
	struct culvert_qp *q = (struct culvert_qp *)ex;
	struct build *b = &q->build;
	size_t room = q->init.cap.max_inline_data, size = 0;
	if (b->n == 0) {
		b->err = EINVAL;
		return;
	}
	char *to = b->data + (size_t)(b->n - 1) * room;
	for (size_t i = 0; i < n; size += list[i].length, i++) {
		if (list[i].length > room - size) {
			b->err = ENOMEM;
			return;
		}
		memcpy(to + size, list[i].addr, list[i].length);
	}
	b->wrs[b->n - 1].send_flags |= IBV_SEND_INLINE;
	wr_set_sge(ex, 0, (uint64_t)to, (uint32_t)size);
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = {addr, length};
	wr_set_inline_data_list(ex, 1, &buf);
}

/* A request that the adapter does not have fails in wr_complete. */
static void unsupported(struct ibv_qp_ex *ex)
{
	((struct culvert_qp *)ex)->build.err = EOPNOTSUPP;
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct build *b = &((struct culvert_qp *)ex)->build;
	pthread_mutex_lock(&ex->qp_base.mutex);
	b->n = 0;
	b->err = 0;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	pthread_mutex_unlock(&ex->qp_base.mutex);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct build *b = &((struct culvert_qp *)ex)->build;
	int err = b->err;
	for (uint32_t i = 0; i + 1 < b->n; i++)
		b->wrs[i].next = &b->wrs[i + 1];
	if (!err && b->n > 0)
		err = culvert_post_send(&ex->qp_base, b->wrs, NULL);
	pthread_mutex_unlock(&ex->qp_base.mutex);
	return err;
}

static int extend(struct culvert_qp *q)
{
	const struct ibv_qp_cap *cap = &q->init.cap;
	struct build *b = &q->build;
	b->wrs = calloc(cap->max_send_wr, sizeof *b->wrs);
	b->sges = calloc((size_t)cap->max_send_wr * cap->max_send_sge, sizeof *b->sges);
	b->data = calloc((size_t)cap->max_send_wr * cap->max_inline_data + 1, 1);
	if (!b->wrs || !b->sges || !b->data)
		return ENOMEM;
	struct ibv_qp_ex *ex = &q->ex;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	*(void **)&ex->wr_bind_mw = *(void **)&ex->wr_local_inv = *(void **)&ex->wr_send_inv = *(void **)&ex->wr_send_tso = (void *)unsupported;
	*(void **)&ex->wr_set_ud_addr = *(void **)&ex->wr_set_xrc_srqn = *(void **)&ex->wr_atomic_write = (void *)unsupported;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	q->extended = 1;
	return 0;
}

struct ibv_qp *culvert_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *a)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	const uint64_t ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
		IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || a->pd->context != context)
		return fail(EINVAL);
	int extended = (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
	if (a->comp_mask & ~known || (extended && a->send_ops_flags & ~ops))
		return fail(EOPNOTSUPP);
	/* The plain struct is the beginning of this one. */
	struct culvert_qp *q = create(a->pd, (struct ibv_qp_init_attr *)a);
	if (!q)
		return NULL;
	int err = extended ? extend(q) : 0;
	if (err) {
		ibv_destroy_qp(&q->qp);
		return fail(err);
	}
	return &q->qp;
}

/* Shared receive queues are not supported: max_srq of the device is 0. */

CULVERT_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	(void)pd, (void)attr;
	return fail(EOPNOTSUPP);
}

CULVERT_EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	(void)srq, (void)attr, (void)mask;
	return EINVAL;
}

CULVERT_EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	(void)srq, (void)attr;
	return EINVAL;
}

CULVERT_EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	(void)srq;
	return EINVAL;
}
