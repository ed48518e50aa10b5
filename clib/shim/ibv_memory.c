/* Protection domains, memory regions and address handles of libibverbs. */
#include "verbs_local.h"

#include <stdlib.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

struct culvert_mr {
	struct ibv_mr mr;
	culvert_id id;
};

CULVERT_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct culvert_pd *p = calloc(1, sizeof *p);
	if (!p)
		return fail(ENOMEM);
	int err = culvert_ibv_alloc_pd(context_id(context), &p->id);
	if (err) {
		free(p);
		return fail(err);
	}
	p->pd.context = context;
	return &p->pd;
}

CULVERT_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int err = culvert_ibv_dealloc_pd(pd_id(pd));
	if (!err)
		free(pd);
	return err;
}

/* made completes a region, or frees it if err is not 0. */
static struct ibv_mr *made(struct culvert_mr *m, struct ibv_pd *pd, void *addr, size_t length, int err)
{
	if (err) {
		free(m);
		return fail(err);
	}
	m->mr.context = pd->context;
	m->mr.pd = pd;
	m->mr.addr = addr;
	m->mr.length = length;
	m->mr.lkey = m->mr.rkey;
	return &m->mr;
}

CULVERT_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct culvert_mr *m = calloc(1, sizeof *m);
	if (!m)
		return fail(ENOMEM);
	int err = culvert_ibv_reg_mr(pd_id(pd), (uint64_t)addr, length, iova, access, &m->id, &m->mr.rkey);
	return made(m, pd, addr, length, err);
}

CULVERT_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

CULVERT_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uint64_t)addr, (unsigned int)access);
}

/* As in rdma-core, addr of the region is the offset. */
CULVERT_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	struct culvert_mr *m = calloc(1, sizeof *m);
	if (!m)
		return fail(ENOMEM);
	int err = culvert_ibv_reg_dmabuf(pd_id(pd), offset, length, iova, fd, (uint32_t)access, &m->id, &m->mr.rkey);
	return made(m, pd, (void *)offset, length, err);
}

CULVERT_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct culvert_mr *m = (struct culvert_mr *)mr;
	int err = culvert_ibv_dereg_mr(m->id);
	if (!err)
		free(m);
	return err;
}

/* Address handles are for datagrams, which the adapter does not have. */

CULVERT_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	(void)pd, (void)attr;
	return fail(EOPNOTSUPP);
}

CULVERT_EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	(void)ah;
	return EINVAL;
}
