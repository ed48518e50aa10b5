/*
 * Two processes and a GPU: one registers memory of cuMemAlloc, by address (peer memory)
 * and as a dma-buf, and the other writes into it, reads from it and adds to it through
 * its network adapter. Prints what arrived and the status of every completion.
 */
#include <cuda.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 1 << 20, BIG = SIZE / 2 };

#define CHECK(x)                                                                                          \
	do {                                                                                              \
		if (!(x)) {                                                                               \
			fprintf(stderr, "%s:%d: %s: %s\n", role, __LINE__, #x, strerror(errno)); \
			exit(1);                                                                          \
		}                                                                                         \
	} while (0)

static const char *role = "target";

/* What the two ends tell each other. */
struct end {
	union ibv_gid gid;
	uint32_t qpn, psn;
	struct {
		uint64_t addr;
		uint32_t rkey;
	} plain, dmabuf;
};

struct verbs {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct end own;
};

static void open_verbs(struct verbs *v)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(list && n == 1);
	v->ctx = ibv_open_device(list[0]);
	CHECK(v->ctx);
	ibv_free_device_list(list);
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	CHECK(ibv_query_port(v->ctx, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(ibv_query_gid_ex(v->ctx, 1, 0, &gid, 0) == 0 && gid.gid_type == IBV_GID_TYPE_ROCE_V2);
	CHECK((v->pd = ibv_alloc_pd(v->ctx)));
	CHECK((v->channel = ibv_create_comp_channel(v->ctx)));
	CHECK((v->cq = ibv_create_cq(v->ctx, 64, v, v->channel, 0)));
	struct ibv_qp_init_attr_ex init = {
		.send_cq = v->cq, .recv_cq = v->cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 64},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = v->pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
	};
	CHECK((v->qp = ibv_create_qp_ex(v->ctx, &init)));
	v->own.gid = gid.gid;
	v->own.qpn = v->qp->qp_num;
	v->own.psn = getpid() & 0xffffff;
}

/* connect_qp uses the GID alone: programs for RoCE set no LID. */
static void connect_qp(struct verbs *v, const struct end *peer)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
	CHECK(ibv_modify_qp(v->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer->qpn, .rq_psn = peer->psn, .max_dest_rd_atomic = 4, .min_rnr_timer = 12};
	a.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 64}};
	CHECK(ibv_modify_qp(v->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = v->own.psn, .max_rd_atomic = 4};
	CHECK(ibv_modify_qp(v->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
	struct ibv_qp_attr now;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(v->qp, &now, IBV_QP_STATE, &init) == 0 && now.qp_state == IBV_QPS_RTS && now.dest_qp_num == peer->qpn && init.cap.max_send_wr == 16);
}

static void swap(int sock, const void *own, void *theirs, size_t n)
{
	CHECK(write(sock, own, n) == (ssize_t)n);
	CHECK(recv(sock, theirs, n, MSG_WAITALL) == (ssize_t)n);
}

/* wait_event sleeps until a completion is there, and returns it. */
static struct ibv_wc wait_event(struct verbs *v)
{
	struct ibv_wc wc;
	for (;;) {
		CHECK(ibv_req_notify_cq(v->cq, 0) == 0);
		int n = ibv_poll_cq(v->cq, 1, &wc);
		CHECK(n >= 0);
		if (n == 1)
			return wc;
		struct ibv_cq *cq;
		void *user;
		struct pollfd p = {v->channel->fd, POLLIN, 0};
		CHECK(poll(&p, 1, -1) == 1);
		CHECK(ibv_get_cq_event(v->channel, &cq, &user) == 0 && cq == v->cq && user == v);
		ibv_ack_cq_events(cq, 1);
	}
}

static struct ibv_wc spin(struct verbs *v)
{
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(v->cq, 1, &wc)) == 0)
		;
	CHECK(n == 1);
	return wc;
}

static void close_verbs(struct verbs *v)
{
	CHECK(ibv_destroy_qp(v->qp) == 0);
	CHECK(ibv_destroy_comp_channel(v->channel) == EBUSY);
	CHECK(ibv_destroy_cq(v->cq) == 0 && ibv_destroy_comp_channel(v->channel) == 0);
	CHECK(ibv_dealloc_pd(v->pd) == 0 && ibv_close_device(v->ctx) == 0);
}

/* differs counts the bytes of GPU memory that are not as expected. */
static int differs(CUdeviceptr at, size_t from, size_t to, unsigned char want)
{
	static unsigned char host[SIZE];
	int bad = 0;
	CHECK(cuMemcpyDtoH(host, at, SIZE) == 0);
	for (size_t i = from; i < to; i++)
		bad += host[i] != want;
	return bad;
}

static void target(int sock)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	CUdevice dev;
	CUcontext ctx;
	CUdeviceptr plain, exported;
	int fd;
	CHECK(cuInit(0) == 0 && cuDeviceGet(&dev, 0) == 0 && cuDevicePrimaryCtxRetain(&ctx, dev) == 0 && cuCtxSetCurrent(ctx) == 0);
	CHECK(cuMemAlloc(&plain, SIZE) == 0 && cuMemsetD8(plain, 0, SIZE) == 0);
	CHECK(cuMemAlloc(&exported, SIZE) == 0 && cuMemsetD8(exported, 0, SIZE) == 0);
	CHECK(cuMemGetHandleForAddressRange(&fd, exported, SIZE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) == 0);

	struct verbs v = {0};
	struct end peer;
	open_verbs(&v);
	struct ibv_mr *a = ibv_reg_mr(v.pd, (void *)plain, SIZE, access);
	CHECK(a);
	struct ibv_mr *b = ibv_reg_dmabuf_mr(v.pd, 0, SIZE, exported, fd, access);
	CHECK(b);
	close(fd);
	errno = 0;
	CHECK(!ibv_reg_mr(v.pd, (void *)4096, 4096, access) && errno == EFAULT);
	CHECK(ibv_dealloc_pd(v.pd) == EBUSY);
	v.own.plain.addr = plain, v.own.plain.rkey = a->rkey;
	v.own.dmabuf.addr = exported, v.own.dmabuf.rkey = b->rkey;
	swap(sock, &v.own, &peer, sizeof peer);
	connect_qp(&v, &peer);
	for (uint64_t i = 0; i < 2; i++) {
		struct ibv_recv_wr wr = {.wr_id = i}, *bad;
		CHECK(ibv_post_recv(v.qp, &wr, &bad) == 0);
	}
	swap(sock, "go", &peer, 2);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = wait_event(&v);
		printf("target: receive %d: %s, opcode %d, %u bytes, immediate %x\n", (int)wc.wr_id, ibv_wc_status_str(wc.status), wc.opcode, wc.byte_len, be32toh(wc.imm_data));
	}
	swap(sock, "ok", &peer, 2); /* after the atomics */
	printf("target: by address: %d of %d bytes differ, %d of the rest\n", differs(plain, 8, BIG, 0xa5), BIG - 8, differs(plain, BIG, SIZE, 0));
	printf("target: by dma-buf: %d of %d bytes differ, %d of the rest\n", differs(exported, 0, BIG, 0x5a), BIG, differs(exported, BIG, SIZE, 0));
	uint64_t sum;
	CHECK(cuMemcpyDtoH(&sum, plain, 8) == 0);
	printf("target: the sum is %llx\n", (unsigned long long)sum);
	swap(sock, "ok", &peer, 2); /* after the refused write */
	printf("target: after the refused write: %d bytes differ\n", differs(plain, BIG, SIZE, 0));
	CHECK(ibv_dereg_mr(a) == 0 && ibv_dereg_mr(b) == 0);
	close_verbs(&v);
	CHECK(cuMemFree(plain) == 0 && cuMemFree(exported) == 0);
}

static void initiator(int sock)
{
	struct verbs v = {0};
	struct end peer;
	role = "initiator";
	open_verbs(&v);
	unsigned char *buf = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(v.pd, buf, SIZE, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	swap(sock, &v.own, &peer, sizeof peer);
	connect_qp(&v, &peer);
	char go[2];
	swap(sock, "go", go, 2);

	/* By ibv_post_send, two requests in a list, of which the last is signaled. */
	memset(buf, 0xa5, BIG);
	struct ibv_sge half[2] = {{(uint64_t)buf, BIG / 4, mr->lkey}, {(uint64_t)buf + BIG / 4, BIG / 4, mr->lkey}};
	struct ibv_sge rest = {(uint64_t)buf + BIG / 2, BIG / 2, mr->lkey};
	struct ibv_send_wr second = {.wr_id = 2, .sg_list = &rest, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED, .imm_data = htobe32(0xc0ffee)};
	struct ibv_send_wr first = {.wr_id = 1, .next = &second, .sg_list = half, .num_sge = 2, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	first.wr.rdma.remote_addr = peer.plain.addr, first.wr.rdma.rkey = peer.plain.rkey;
	second.wr.rdma.remote_addr = peer.plain.addr + BIG / 2, second.wr.rdma.rkey = peer.plain.rkey;
	CHECK(ibv_post_send(v.qp, &first, &bad) == 0);
	struct ibv_wc wc = wait_event(&v);
	printf("initiator: write %d by address: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));

	/* The same by the calls of ibv_qp_ex. */
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(v.qp);
	CHECK(x);
	memset(buf, 0x5a, BIG);
	unsigned char inlined[64];
	memset(inlined, 0x5a, sizeof inlined);
	x->wr_start(x);
	x->wr_id = 0, x->wr_flags = 0;
	x->wr_rdma_write(x, peer.dmabuf.rkey, peer.dmabuf.addr);
	x->wr_set_inline_data(x, inlined, sizeof inlined);
	memset(inlined, 0, sizeof inlined); /* was copied */
	x->wr_id = 3, x->wr_flags = IBV_SEND_SIGNALED;
	x->wr_rdma_write_imm(x, peer.dmabuf.rkey, peer.dmabuf.addr + sizeof inlined, htobe32(0xbeef));
	x->wr_set_sge(x, mr->lkey, (uint64_t)buf, BIG - sizeof inlined);
	CHECK(x->wr_complete(x) == 0);
	wc = spin(&v);
	printf("initiator: write %d by dma-buf: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));

	/* READ and FETCH_ADD at GPU memory. */
	struct ibv_sge sge = {(uint64_t)buf, BIG, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 4, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = peer.plain.addr, wr.wr.rdma.rkey = peer.plain.rkey;
	CHECK(ibv_post_send(v.qp, &wr, &bad) == 0);
	wc = spin(&v);
	printf("initiator: read %d: %s, %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status), buf[0] == 0xa5 && buf[BIG - 1] == 0xa5 ? "right" : "wrong");
	sge.length = 8;
	wr.wr_id = 5, wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.wr.atomic.remote_addr = peer.plain.addr, wr.wr.atomic.rkey = peer.plain.rkey, wr.wr.atomic.compare_add = 0x11;
	CHECK(ibv_post_send(v.qp, &wr, &bad) == 0);
	wc = spin(&v);
	printf("initiator: add %d: %s, %llx before\n", (int)wc.wr_id, ibv_wc_status_str(wc.status), *(unsigned long long *)buf);
	swap(sock, "ok", go, 2);

	/* One byte too many is refused, and the queue pair fails. */
	sge.length = BIG + 1;
	wr.wr_id = 6, wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = peer.plain.addr + SIZE - BIG, wr.wr.rdma.rkey = peer.plain.rkey;
	CHECK(ibv_post_send(v.qp, &wr, &bad) == 0);
	wc = spin(&v);
	printf("initiator: write %d beyond the end: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
	wr.wr_id = 7;
	CHECK(ibv_post_send(v.qp, &wr, &bad) == 0);
	wc = spin(&v);
	printf("initiator: write %d after it: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
	wr.num_sge = 100;
	CHECK(ibv_post_send(v.qp, &wr, &bad) == EINVAL && bad == &wr);
	swap(sock, "ok", go, 2);
	CHECK(ibv_dereg_mr(mr) == 0);
	close_verbs(&v);
}

int main(void)
{
	int pair[2], status;
	alarm(300); /* of both: a peer that fails must not leave the other waiting */
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	pid_t child = fork(); /* before either uses a library */
	if (child == 0) {
		alarm(300);
		close(pair[0]);
		target(pair[1]);
		return 0;
	}
	close(pair[1]);
	initiator(pair[0]);
	return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
