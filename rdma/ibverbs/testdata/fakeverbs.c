// A libibverbs for tests: it records what it is given, and completes requests at once.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

struct sge { uint64_t addr; uint32_t len, lkey; };
struct send_wr { uint64_t id; struct send_wr *next; struct sge *sg; int nsge, opcode; uint32_t flags, imm; uint64_t remote[4]; uint64_t rest[7]; };
struct recv_wr { uint64_t id; struct recv_wr *next; struct sge *sg; int nsge; };
struct wc { uint64_t id; uint32_t status, opcode, vendor, len, imm, qpn, src, flags; uint16_t pkey, slid; uint8_t sl, bits; };
struct context { void *device; void *ops[32]; int cmd_fd, async_fd, vectors; pthread_mutex_t mutex; void *compat; };
struct channel { struct context *ctx; int fd, refs; int other; };
struct cq { struct context *ctx; struct channel *channel; struct wc wcs[256]; int head, tail, armed; };
struct qp { struct context *ctx; void *user, *pd; struct cq *send, *recv; void *srq; uint32_t handle, num, state, type;};
struct mr { struct context *ctx; void *pd, *addr; uint64_t len; uint32_t handle, lkey, rkey; };
struct device { char name[64]; };

struct sent { uint64_t id, opcode, flags, imm, nsge; struct sge sge[2]; uint64_t remote[4]; };
struct {
	uint64_t registered[8]; // kind (1 address, 2 dma-buf) and arguments
	uint64_t sends, limit;  // limit is how many are accepted
	struct sent send[128];
	uint64_t recvs;
	struct sent recv[128];
	uint64_t attr[18], mask;
	uint64_t caps[5], sigall;
	uint64_t acks, solicited, kicks;
	uint64_t devices, list_errno, reg_errno;
} fake = {.limit = 1 << 20, .devices = 2};

void *fake_state(void) { return &fake; }

static struct device devs[2] = {{"fake0"}, {"fake1"}};

void **ibv_get_device_list(int *n) {
	if (fake.list_errno) { errno = fake.list_errno; return NULL; }
	void **l = calloc(3, sizeof *l);
	for (int i = 0; i < (int)fake.devices; i++) l[i] = &devs[i];
	*n = fake.devices;
	return l;
}
void ibv_free_device_list(void **l) { free(l); }
const char *ibv_get_device_name(struct device *d) { return d->name; }
uint64_t ibv_get_device_guid(struct device *d) { return __builtin_bswap64(0x0102030405060708 + (d - devs)); }

static void push(struct cq *q, struct wc w) {
	q->wcs[q->tail++ % 256] = w;
	if (q->armed) { q->armed = 0; if (write(q->channel->other, "e", 1) != 1) abort(); }
}

static int post_send(struct qp *q, struct send_wr *wr, struct send_wr **bad) {
	static const int ops[] = {1, 1, 0, 0, 2, 3, 4};
	for (; wr; wr = wr->next) {
		if (fake.sends == fake.limit) { *bad = wr; return ENOMEM; }
		struct sent *s = &fake.send[fake.sends++ % 128];
		uint32_t len = 0;
		memset(s, 0, sizeof *s);
		s->id = wr->id; s->opcode = wr->opcode; s->flags = wr->flags; s->imm = wr->imm; s->nsge = wr->nsge;
		memcpy(s->remote, wr->remote, sizeof s->remote);
		for (int i = 0; i < wr->nsge; i++) { len += wr->sg[i].len; if (i < 2) s->sge[i] = wr->sg[i]; }
		if (wr->flags & 2)
			push(q->send, (struct wc){.id = wr->id, .opcode = ops[wr->opcode], .len = len, .imm = wr->imm, .qpn = q->num, .flags = 2});
	}
	return 0;
}

static int post_recv(struct qp *q, struct recv_wr *wr, struct recv_wr **bad) {
	for (; wr; wr = wr->next) {
		struct sent *s = &fake.recv[fake.recvs++ % 128];
		memset(s, 0, sizeof *s);
		s->id = wr->id; s->nsge = wr->nsge;
		for (int i = 0; i < wr->nsge && i < 2; i++) s->sge[i] = wr->sg[i];
	}
	return 0;
}

static int poll_cq(struct cq *q, int n, struct wc *out) {
	int i = 0;
	while (i < n && q->head < q->tail) out[i++] = q->wcs[q->head++ % 256];
	return i;
}

static int req_notify(struct cq *q, int solicited) { q->armed = 1; fake.solicited = solicited; return 0; }

static int async_pipe[2];

struct context *ibv_open_device(struct device *d) {
	struct context *c = calloc(1, sizeof *c);
	if (pipe2(async_pipe, O_CLOEXEC)) return NULL;
	c->device = d; c->async_fd = async_pipe[0];
	c->ops[11] = poll_cq; c->ops[12] = req_notify; c->ops[25] = post_send; c->ops[26] = post_recv;
	return c;
}
int ibv_close_device(struct context *c) { close(async_pipe[0]); close(async_pipe[1]); free(c); return 0; }

struct event { void *element; int type; };
void fake_event(void *element, int type) {
	struct event e = {element, type};
	if (write(async_pipe[1], &e, sizeof e) != sizeof e) abort();
}
int ibv_get_async_event(struct context *c, struct event *e) { return read(c->async_fd, e, sizeof *e) == sizeof *e ? 0 : -1; }
void ibv_ack_async_event(struct event *e) {}

int ibv_query_device(struct context *c, char *a) {
	memset(a, 0, 232);
	strcpy(a, "1.2.3");
	*(uint64_t *)(a + 80) = 1ull << 40;
	*(int *)(a + 108) = 1000; *(int *)(a + 112) = 500; *(int *)(a + 120) = 30; *(int *)(a + 132) = 4000;
	*(int *)(a + 144) = 16; *(int *)(a + 156) = 12; *(int *)(a + 164) = 1; a[227] = 2;
	return 0;
}
int ibv_query_port(struct context *c, uint8_t port, char *a) {
	if (port > 2) return EINVAL;
	memset(a, 0, 48);
	*(int *)a = 4; *(int *)(a + 4) = 5; *(int *)(a + 8) = 4; *(int *)(a + 12) = 8; *(int *)(a + 20) = 1 << 30;
	*(uint16_t *)(a + 34) = 7; a[43] = 2; a[44] = 32; a[46] = 2;
	return 0;
}
struct gid { uint8_t gid[16]; uint32_t index, port, type, ifindex; };
ssize_t _ibv_query_gid_table(struct context *c, struct gid *g, size_t n, uint32_t flags, size_t size) {
	if (size != sizeof *g || n < 3 || flags) { return -EINVAL; }
	g[0] = (struct gid){{0xfe, 0x80, [15] = 1}, 0, 1, 1, 0};
	g[1] = (struct gid){{[10] = 0xff, [11] = 0xff, 10, 0, 0, 1}, 3, 1, 2, 1};
	g[2] = (struct gid){{[10] = 0xff, [11] = 0xff, 10, 0, 0, 9}, 0, 2, 2, 0};
	return 3;
}
int ibv_query_gid(struct context *c, uint8_t port, int index, uint8_t *g) {
	memset(g, 0, 16);
	if (index == 2) { g[10] = g[11] = 0xff; g[12] = 10; g[15] = 2; }
	return 0;
}

static int dummy;
void *ibv_alloc_pd(struct context *c) { return &dummy; }
int ibv_dealloc_pd(void *pd) { return 0; }

static struct mr *region(uint64_t kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
	static uint32_t keys = 0x100;
	if (fake.reg_errno) { errno = fake.reg_errno; return NULL; }
	uint64_t args[] = {kind, a, b, c, d, e};
	memcpy(fake.registered, args, sizeof args);
	struct mr *m = calloc(1, sizeof *m);
	m->lkey = keys++; m->rkey = keys++;
	return m;
}
struct mr *ibv_reg_mr(void *pd, void *addr, size_t len, int access) { errno = ENOSYS; return NULL; }
struct mr *ibv_reg_mr_iova2(void *pd, void *addr, size_t len, uint64_t iova, unsigned access) { return region(1, (uint64_t)addr, len, iova, access, 0); }
struct mr *ibv_reg_dmabuf_mr(void *pd, uint64_t off, size_t len, uint64_t iova, int fd, int access) { return region(2, off, len, iova, fd, access); }
int ibv_dereg_mr(struct mr *m) { free(m); return 0; }

struct channel *ibv_create_comp_channel(struct context *c) {
	struct channel *h = calloc(1, sizeof *h);
	int fds[2];
	if (pipe2(fds, O_CLOEXEC)) return NULL;
	h->ctx = c; h->fd = fds[0]; h->other = fds[1];
	return h;
}
int ibv_destroy_comp_channel(struct channel *h) { close(h->fd); close(h->other); free(h); return 0; }
struct cq *ibv_create_cq(struct context *c, int n, void *user, struct channel *h, int vector) {
	struct cq *q = calloc(1, sizeof *q);
	q->ctx = c; q->channel = h;
	return q;
}
int ibv_destroy_cq(struct cq *q) { free(q); return 0; }
int ibv_get_cq_event(struct channel *h, void **cq, void **user) { char b; return read(h->fd, &b, 1) == 1 ? 0 : -1; }
void ibv_ack_cq_events(struct cq *q, unsigned n) { fake.acks += n; }

struct init { void *user; struct cq *send, *recv; void *srq; uint32_t caps[5]; int type, sigall; };
struct qp *ibv_create_qp(void *pd, struct init *a) {
	static uint32_t num = 0x11;
	if (a->caps[0] > 500 || a->type != 2) { errno = EINVAL; return NULL; }
	struct qp *q = calloc(1, sizeof *q);
	q->send = a->send; q->recv = a->recv; q->num = num++;
	for (int i = 0; i < 5; i++) fake.caps[i] = a->caps[i];
	fake.sigall = a->sigall;
	return q;
}
int ibv_destroy_qp(struct qp *q) { free(q); return 0; }
int ibv_modify_qp(struct qp *q, void *attr, int mask) {
	memcpy(fake.attr, attr, sizeof fake.attr);
	fake.mask = mask;
	if ((mask & 1) && q->state == 6 && *(uint32_t *)attr == 6) fake.kicks++;
	if (mask & 1) q->state = *(uint32_t *)attr;
	return 0;
}
int ibv_query_qp(struct qp *q, uint32_t *attr, int mask, void *init) { *attr = q->state; return 0; }
