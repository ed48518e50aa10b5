/* Devices, contexts and queries of libibverbs. */
#define _GNU_SOURCE
#include "verbs_local.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_DEVICES 8
#define MAX_GIDS 64

/* The devices of the machine, which stay until the process ends. */
static struct {
	struct ibv_device dev;
	__be64 guid;
} devices[MAX_DEVICES];
static ssize_t device_count;
static int device_errno;
static pthread_once_t listed = PTHREAD_ONCE_INIT;

static void list_devices(void)
{
	static struct culvert_ibv_device found[MAX_DEVICES];
	device_count = culvert_ibv_devices(found, MAX_DEVICES);
	if (device_count < 0)
		device_errno = errno;
	for (ssize_t i = 0; i < device_count; i++) {
		struct ibv_device *d = &devices[i].dev;
		devices[i].guid = found[i].guid;
		d->node_type = IBV_NODE_CA;
		d->transport_type = IBV_TRANSPORT_IB;
		snprintf(d->name, sizeof d->name, "%s", found[i].name);
		snprintf(d->dev_name, sizeof d->dev_name, "uverbs%zd", i);
		snprintf(d->dev_path, sizeof d->dev_path, "/sys/class/infiniband_verbs/%s", d->dev_name);
		snprintf(d->ibdev_path, sizeof d->ibdev_path, "/sys/class/infiniband/%s", d->name);
	}
}

CULVERT_EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	if (num)
		*num = 0;
	pthread_once(&listed, list_devices);
	if (device_count < 0)
		return fail(device_errno);
	struct ibv_device **list = calloc(device_count + 1, sizeof *list);
	if (!list)
		return fail(ENOMEM);
	for (ssize_t i = 0; i < device_count; i++)
		list[i] = &devices[i].dev;
	if (num)
		*num = (int)device_count;
	return list;
}

CULVERT_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

CULVERT_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

static ssize_t number(struct ibv_device *device)
{
	for (ssize_t i = 0; i < device_count; i++)
		if (device == &devices[i].dev)
			return i;
	return -1;
}

CULVERT_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	return (int)number(device);
}

CULVERT_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	ssize_t i = number(device);
	return i < 0 ? 0 : devices[i].guid;
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr, size_t size)
{
	if ((input && input->comp_mask) || size < offsetof(struct ibv_device_attr_ex, comp_mask))
		return EINVAL;
	memset(attr, 0, size);
	return ibv_query_device(context, &attr->orig_attr);
}

CULVERT_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct culvert_context *c = calloc(1, sizeof *c);
	if (!c)
		return fail(ENOMEM);
	int err = culvert_ibv_open(device->name, &c->id);
	if (err) {
		free(c);
		return fail(err);
	}
	c->verbs = (struct verbs_context){
		.query_port = culvert_query_port_ex,
		.create_cq_ex = culvert_create_cq_ex,
		.query_device_ex = query_device_ex,
		.create_qp_ex = culvert_create_qp_ex,
		.sz = sizeof c->verbs,
		.context = {
			.device = device,
			.ops = {
				.poll_cq = culvert_poll_cq,
				.req_notify_cq = culvert_req_notify_cq,
				.post_send = culvert_post_send,
				.post_recv = culvert_post_recv,
			},
			.cmd_fd = -1,
			/* The adapter reports no asynchronous events: nothing becomes readable. */
			.async_fd = eventfd(0, EFD_CLOEXEC),
			.num_comp_vectors = 1,
			.abi_compat = (void *)UINTPTR_MAX,
		},
	};
	pthread_mutex_init(&c->verbs.context.mutex, NULL);
	return &c->verbs.context;
}

CULVERT_EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct culvert_context *c = (struct culvert_context *)verbs_get_ctx(context);
	int err = culvert_ibv_close(c->id);
	if (err) {
		errno = err;
		return err;
	}
	close(context->async_fd);
	pthread_mutex_destroy(&context->mutex);
	free(c);
	return 0;
}

CULVERT_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	uint64_t n;
	(void)event;
	/* Blocks as long as the context exists, or fails with EAGAIN. */
	ssize_t got = read(context->async_fd, &n, sizeof n);
	if (got >= 0)
		errno = EIO;
	return -1;
}

CULVERT_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

CULVERT_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	return culvert_ibv_query_device(context_id(context), attr);
}

int culvert_query_port_ex(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	struct ibv_port_attr a;
	int err = culvert_ibv_query_port(context_id(context), port, &a);
	if (err)
		return err;
	memset(attr, 0, size);
	memcpy(attr, &a, size < sizeof a ? size : sizeof a);
	return 0;
}

/* Programs built long ago have a struct that ends before port_cap_flags2. */
CULVERT_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return culvert_query_port_ex(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* find_gid returns an entry of a port's GID table. */
static int find_gid(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry)
{
	struct ibv_gid_entry list[MAX_GIDS];
	ssize_t n = culvert_ibv_query_gids(context_id(context), (int)port, list, MAX_GIDS);
	if (n < 0)
		return errno;
	for (ssize_t i = 0; i < n; i++)
		if (list[i].gid_index == index) {
			*entry = list[i];
			return 0;
		}
	return ENODATA;
}

CULVERT_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry e;
	int err = find_gid(context, port, (uint32_t)index, &e);
	if (err) {
		errno = err;
		return -1;
	}
	*gid = e.gid;
	return 0;
}

CULVERT_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct ibv_gid_entry e;
	if (flags || size < sizeof e)
		return EINVAL;
	int err = find_gid(context, port, index, &e);
	if (!err) {
		memset(entry, 0, size);
		*entry = e;
	}
	return err;
}

CULVERT_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t room, uint32_t flags, size_t size)
{
	struct ibv_gid_entry list[MAX_GIDS];
	if (flags || size < sizeof *list)
		return -EINVAL;
	ssize_t n = culvert_ibv_query_gids(context_id(context), 1, list, MAX_GIDS);
	if (n < 0)
		return -errno;
	if ((size_t)n > room)
		return -EINVAL;
	memset(entries, 0, n * size);
	for (ssize_t i = 0; i < n; i++)
		memcpy((char *)entries + i * size, &list[i], sizeof *list);
	return n;
}

/* The private name by which ibv_devinfo asks; its numbers are those of sysfs. */
CULVERT_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	struct ibv_gid_entry e;
	int err = find_gid(context, port, index, &e);
	if (err) {
		errno = err;
		return -1;
	}
	*type = e.gid_type == IBV_GID_TYPE_ROCE_V2;
	return 0;
}

/* There is one partition, the default. */
#define DEFAULT_PKEY 0xffff

CULVERT_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	(void)context;
	if (port != 1 || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = DEFAULT_PKEY;
	return 0;
}

CULVERT_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	(void)context;
	return port == 1 && pkey == DEFAULT_PKEY ? 0 : -1;
}

CULVERT_EXPORT const char *ibv_get_sysfs_path(void)
{
	return "/sys";
}

CULVERT_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	return (int)culvert_ibv_read_file(dir, file, buf, size);
}

CULVERT_EXPORT int ibv_fork_init(void)
{
	return 0; /* registered memory is not copied: DMA of the software machine uses addresses */
}

CULVERT_EXPORT int ibv_is_fork_initialized(void)
{
	return 2; /* not needed */
}
