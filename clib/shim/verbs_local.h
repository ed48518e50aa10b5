/*
 * The software machine's libibverbs.so.1. What programs see are structs of verbs.h; the
 * structs here begin with them and have the ID of their object in the Go core
 * (internal/verbsapi). verbs.c is generated and calls the Go core.
 *
 *   ibv_device.c  devices, contexts, queries
 *   ibv_memory.c  protection domains, regions, address handles
 *   ibv_queue.c   completion channels and queues
 *   ibv_pair.c    queue pairs, posting
 *   ibv_names.c   names of values, rates
 *   ibv_other.c   what other libraries import and nothing here uses
 */
#ifndef CULVERT_VERBS_LOCAL_H
#define CULVERT_VERBS_LOCAL_H

#include "../include/infiniband/verbs.h"
#include "gocore.h"

#undef ibv_query_port

typedef uint64_t culvert_id;

/* An adapter, as the Go core lists it. */
struct culvert_ibv_device {
	char name[64];
	__be64 guid;
};

struct culvert_context {
	struct verbs_context verbs;
	culvert_id id;
};

struct culvert_pd {
	struct ibv_pd pd;
	culvert_id id;
};

static inline culvert_id context_id(struct ibv_context *c)
{
	return ((struct culvert_context *)verbs_get_ctx(c))->id;
}

static inline culvert_id pd_id(struct ibv_pd *pd)
{
	return ((struct culvert_pd *)pd)->id;
}

/* fail returns NULL and sets errno, for functions that return objects. */
static inline void *fail(int err)
{
	errno = err;
	return NULL;
}

/* The functions of a context that other files have. */
culvert_id culvert_cq_id(struct ibv_cq *cq);
int culvert_poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc);
int culvert_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *culvert_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
struct ibv_qp *culvert_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int culvert_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int culvert_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int culvert_query_port_ex(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size);

/* Calls of the Go core, which verbs.c has. */
ssize_t culvert_ibv_devices(struct culvert_ibv_device *list, int room);
ssize_t culvert_ibv_read_file(const char *dir, const char *file, char *buf, size_t size);
int culvert_ibv_open(const char *name, culvert_id *dev);
int culvert_ibv_close(culvert_id dev);
int culvert_ibv_query_device(culvert_id dev, struct ibv_device_attr *attr);
int culvert_ibv_query_port(culvert_id dev, int port, struct ibv_port_attr *attr);
ssize_t culvert_ibv_query_gids(culvert_id dev, int port, struct ibv_gid_entry *list, size_t room);
int culvert_ibv_alloc_pd(culvert_id dev, culvert_id *pd);
int culvert_ibv_dealloc_pd(culvert_id pd);
int culvert_ibv_reg_mr(culvert_id pd, uint64_t addr, uint64_t size, uint64_t iova, uint32_t access, culvert_id *mr, uint32_t *key);
int culvert_ibv_reg_dmabuf(culvert_id pd, uint64_t offset, uint64_t size, uint64_t iova, int fd, uint32_t access, culvert_id *mr, uint32_t *key);
int culvert_ibv_dereg_mr(culvert_id mr);
int culvert_ibv_create_channel(culvert_id *channel, int *fd);
int culvert_ibv_destroy_channel(culvert_id channel);
int culvert_ibv_create_cq(culvert_id dev, int cqe, culvert_id channel, culvert_id *cq);
int culvert_ibv_destroy_cq(culvert_id cq);
ssize_t culvert_ibv_poll_cq(culvert_id cq, int room, struct ibv_wc *list);
int culvert_ibv_arm_cq(culvert_id cq, int solicited);
int culvert_ibv_create_qp(culvert_id pd, culvert_id send_cq, culvert_id recv_cq, struct ibv_qp_cap *cap, int signal_all, culvert_id *qp, uint32_t *num);
int culvert_ibv_modify_qp(culvert_id qp, const struct ibv_qp_attr *attr, uint32_t mask);
ssize_t culvert_ibv_qp_state(culvert_id qp);
int culvert_ibv_destroy_qp(culvert_id qp);
int culvert_ibv_post_send(culvert_id qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int culvert_ibv_post_recv(culvert_id qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif
