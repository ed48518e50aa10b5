/* Completion channels and completion queues of libibverbs. */
#define _GNU_SOURCE
#include "verbs_local.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

struct culvert_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex;
	};
	culvert_id id;
	struct culvert_cq *next; /* of the same channel */
	uint32_t events;         /* that the program got; guarded by the channel */
	struct ibv_wc wc;        /* the completion that ibv_cq_ex is at */
};

struct culvert_channel {
	struct ibv_comp_channel channel;
	culvert_id id;
	pthread_mutex_t mutex;
	struct culvert_cq *queues;
};

culvert_id culvert_cq_id(struct ibv_cq *cq)
{
	return ((struct culvert_cq *)cq)->id;
}

CULVERT_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct culvert_channel *c = calloc(1, sizeof *c);
	if (!c)
		return fail(ENOMEM);
	int err = culvert_ibv_create_channel(&c->id, &c->channel.fd);
	if (err) {
		free(c);
		return fail(err);
	}
	c->channel.context = context;
	pthread_mutex_init(&c->mutex, NULL);
	return &c->channel;
}

CULVERT_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct culvert_channel *c = (struct culvert_channel *)channel;
	if (channel->refcnt > 0)
		return EBUSY;
	int err = culvert_ibv_destroy_channel(c->id);
	if (err)
		return err;
	close(channel->fd);
	pthread_mutex_destroy(&c->mutex);
	free(c);
	return 0;
}

/* join adds a queue to its channel, leave removes it. */
static void join(struct culvert_channel *c, struct culvert_cq *q)
{
	pthread_mutex_lock(&c->mutex);
	q->next = c->queues;
	c->queues = q;
	c->channel.refcnt++;
	pthread_mutex_unlock(&c->mutex);
}

static uint32_t leave(struct culvert_channel *c, struct culvert_cq *q)
{
	pthread_mutex_lock(&c->mutex);
	struct culvert_cq **at = &c->queues;
	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	c->channel.refcnt--;
	uint32_t events = q->events;
	pthread_mutex_unlock(&c->mutex);
	return events;
}

static struct culvert_cq *create(struct ibv_context *context, int cqe, void *user, struct ibv_comp_channel *channel, int vector)
{
	if (vector < 0 || vector >= context->num_comp_vectors)
		return fail(EINVAL);
	struct culvert_cq *q = calloc(1, sizeof *q);
	if (!q)
		return fail(ENOMEM);
	struct culvert_channel *c = (struct culvert_channel *)channel;
	int err = culvert_ibv_create_cq(context_id(context), cqe, c ? c->id : 0, &q->id);
	if (err) {
		free(q);
		return fail(err);
	}
	q->cq.context = context;
	q->cq.channel = channel;
	q->cq.cq_context = user;
	q->cq.cqe = cqe;
	pthread_mutex_init(&q->cq.mutex, NULL);
	pthread_cond_init(&q->cq.cond, NULL);
	if (c)
		join(c, q);
	return q;
}

CULVERT_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *user, struct ibv_comp_channel *channel, int vector)
{
	struct culvert_cq *q = create(context, cqe, user, channel, vector);
	return q ? &q->cq : NULL;
}

CULVERT_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	return cqe > 0 && cqe <= cq->cqe ? 0 : EOPNOTSUPP; /* what is larger may stay so */
}

CULVERT_EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct culvert_cq *q = (struct culvert_cq *)cq;
	int err = culvert_ibv_destroy_cq(q->id);
	if (err)
		return err;
	uint32_t events = cq->channel ? leave((struct culvert_channel *)cq->channel, q) : 0;
	pthread_mutex_lock(&cq->mutex);
	while (cq->comp_events_completed != events)
		pthread_cond_wait(&cq->cond, &cq->mutex);
	pthread_mutex_unlock(&cq->mutex);
	pthread_mutex_destroy(&cq->mutex);
	pthread_cond_destroy(&cq->cond);
	free(q);
	return 0;
}

/* The events of a queue that was destroyed meanwhile are skipped. */
CULVERT_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user)
{
	struct culvert_channel *c = (struct culvert_channel *)channel;
	for (;;) {
		culvert_id id;
		ssize_t n = read(channel->fd, &id, sizeof id);
		if (n != sizeof id) {
			if (n >= 0)
				errno = EIO;
			return -1;
		}
		pthread_mutex_lock(&c->mutex);
		struct culvert_cq *q = c->queues;
		while (q && q->id != id)
			q = q->next;
		if (q) {
			q->events++;
			*cq = &q->cq;
			*user = q->cq.cq_context;
		}
		pthread_mutex_unlock(&c->mutex);
		if (q)
			return 0;
	}
}

CULVERT_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += n;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

int culvert_poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	ssize_t n = culvert_ibv_poll_cq(culvert_cq_id(cq), room, wc);
	if (n == 0)
		sched_yield(); /* the adapter is threads of this host, which a spinning caller would delay */
	return (int)n;
}

int culvert_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return culvert_ibv_arm_cq(culvert_cq_id(cq), solicited_only);
}

/* The queue that is read field by field. */

static int next_poll(struct ibv_cq_ex *cq)
{
	struct culvert_cq *q = (struct culvert_cq *)cq;
	int n = culvert_poll_cq(&q->cq, 1, &q->wc);
	if (n < 0)
		return errno;
	if (n == 0)
		return ENOENT;
	cq->status = q->wc.status;
	cq->wr_id = q->wc.wr_id;
	return 0;
}

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	return attr->comp_mask ? EINVAL : next_poll(cq);
}

static void end_poll(struct ibv_cq_ex *cq)
{
	(void)cq;
}

#define READ(type, field, value)                                     \
	static type read_##field(struct ibv_cq_ex *cq)               \
	{                                                            \
		const struct ibv_wc *wc = &((struct culvert_cq *)cq)->wc; \
		return value;                                        \
	}
READ(enum ibv_wc_opcode, opcode, wc->opcode)
READ(uint32_t, vendor_err, wc->vendor_err)
READ(uint32_t, byte_len, wc->byte_len)
READ(__be32, imm_data, wc->imm_data)
READ(uint32_t, qp_num, wc->qp_num)
READ(uint32_t, src_qp, wc->src_qp)
READ(unsigned int, wc_flags, wc->wc_flags)
READ(uint32_t, slid, wc->slid)
READ(uint8_t, sl, wc->sl)
READ(uint8_t, dlid_path_bits, wc->dlid_path_bits)

struct ibv_cq_ex *culvert_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *a)
{
	if (a->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS)
		return fail(EOPNOTSUPP); /* no timestamps, VLANs, tags */
	if (a->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS)
		return fail(EOPNOTSUPP);
	struct culvert_cq *q = create(context, (int)a->cqe, a->cq_context, a->channel, (int)a->comp_vector);
	if (!q)
		return NULL;
	q->ex.start_poll = start_poll;
	q->ex.next_poll = next_poll;
	q->ex.end_poll = end_poll;
	q->ex.read_opcode = read_opcode;
	q->ex.read_vendor_err = read_vendor_err;
	q->ex.read_byte_len = read_byte_len;
	q->ex.read_imm_data = read_imm_data;
	q->ex.read_qp_num = read_qp_num;
	q->ex.read_src_qp = read_src_qp;
	q->ex.read_wc_flags = read_wc_flags;
	q->ex.read_slid = read_slid;
	q->ex.read_sl = read_sl;
	q->ex.read_dlid_path_bits = read_dlid_path_bits;
	return &q->ex;
}
