/* A NIC that writes what it receives to memory that the CPU cannot reach, put in front of a virtual
 * device from outside (LD_PRELOAD): that device receives into buffers of the stand-in's own, and
 * what comes out of it is delivered as such a NIC does, in the buffers of the queue.
 *
 * GPUNIC=split    it splits frames where it is told to; frames of 777 bytes one byte too early
 * GPUNIC=whole    it does not
 * GPUNIC=refuse   as `whole`, and it cannot be given memory
 *
 * The test says where memory lies that it may write to (gpunic_memory). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rte_bus.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>

#define BEHIND(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define SPLIT (RTE_ETH_RX_OFFLOAD_SCATTER | RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT)
#define ODD 777

static uintptr_t memory, memory_end, alias;
static int maps;

/* One port at a time receives so. */
static struct {
	uint16_t port, split;
	struct rte_mempool *bounce, *heads, *pool;
	const struct rte_eth_rxtx_callback *callback;
	uint64_t no_buffer, errors;
} nic;

/* From `base` on `len` bytes, which are the same as those from `writable` on. */
void gpunic_memory(uintptr_t base, size_t len, uintptr_t writable)
{
	memory = base;
	memory_end = base + len;
	alias = writable;
}

/* Pieces of memory that a device knows. */
int gpunic_maps(void)
{
	return maps;
}

static int is(const char *word)
{
	const char *mode = getenv("GPUNIC");

	return mode && strcmp(mode, word) == 0;
}

int rte_eth_dev_info_get(uint16_t port, struct rte_eth_dev_info *info)
{
	int r = BEHIND(rte_eth_dev_info_get)(port, info);

	if (r == 0 && is("split")) {
		info->rx_offload_capa |= SPLIT;
		info->rx_seg_capa.multi_pools = 1;
		info->rx_seg_capa.max_nseg = 2;
	}
	return r;
}

int rte_eth_dev_configure(uint16_t port, uint16_t rx, uint16_t tx, const struct rte_eth_conf *asked)
{
	struct rte_eth_conf conf = *asked;

	conf.rxmode.offloads &= ~SPLIT;
	return BEHIND(rte_eth_dev_configure)(port, rx, tx, &conf);
}

/* No device of the bus of those that are software. */
const char *rte_bus_name(const struct rte_bus *bus)
{
	return memory ? "pci" : BEHIND(rte_bus_name)(bus);
}

int rte_dev_dma_map(struct rte_device *dev, void *addr, uint64_t iova, size_t len)
{
	if (is("refuse")) {
		rte_errno = EIO;
		return -1;
	}
	maps++;
	return 0;
}

int rte_dev_dma_unmap(struct rte_device *dev, void *addr, uint64_t iova, size_t len)
{
	maps--;
	return 0;
}

static int out_of_reach(const void *at)
{
	return (uintptr_t)at >= memory && (uintptr_t)at < memory_end;
}

int rte_eth_rx_queue_setup(uint16_t port, uint16_t queue, uint16_t ring, unsigned int socket,
			   const struct rte_eth_rxconf *conf, struct rte_mempool *mp)
{
	struct rte_mempool *pool = mp;
	struct rte_mbuf *one;

	if (!mp) {
		/* As a driver that splits checks it. */
		if (!(conf->offloads & RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT) || conf->rx_nseg != 2 ||
		    conf->rx_seg[0].split.length == 0 || conf->rx_seg[1].split.length != 0)
			return -EINVAL;
		pool = conf->rx_seg[1].split.mp;
	}
	one = rte_pktmbuf_alloc(pool);
	if (!one)
		return -ENOMEM;
	if (!out_of_reach(one->buf_addr)) {
		rte_pktmbuf_free(one);
		return BEHIND(rte_eth_rx_queue_setup)(port, queue, ring, socket, conf, mp);
	}
	rte_pktmbuf_free(one);
	memset(&nic, 0, sizeof(nic));
	nic.port = port;
	nic.pool = pool;
	if (!mp) {
		nic.heads = conf->rx_seg[0].split.mp;
		nic.split = conf->rx_seg[0].split.length;
	}
	nic.bounce = rte_pktmbuf_pool_create("gpunic", 4095, 0, 0, 2048 + 128, SOCKET_ID_ANY);
	return nic.bounce ? BEHIND(rte_eth_rx_queue_setup)(port, queue, ring, socket, NULL, nic.bounce)
			  : -ENOMEM;
}

/* What the CPU may not write, the NIC does. */
static uint8_t *reach(struct rte_mbuf *m)
{
	uintptr_t at = (uintptr_t)m->buf_addr + m->data_off;

	return (uint8_t *)(out_of_reach((void *)at) ? at - memory + alias : at);
}

/* Moves bytes of a frame to a buffer; how many. */
static uint32_t part(struct rte_mbuf *m, const uint8_t *from, uint32_t len, uint32_t most)
{
	uint32_t room = m->buf_len - m->data_off;

	len = RTE_MIN(len, RTE_MIN(room, most));
	memcpy(reach(m), from, len);
	m->data_len = len;
	return len;
}

/* A frame as this NIC delivers it; NULL where it has no buffer. */
static struct rte_mbuf *received(const uint8_t *from, uint32_t len)
{
	uint32_t split = nic.split - (len == ODD), done = 0;
	struct rte_mbuf *head = rte_pktmbuf_alloc(nic.split ? nic.heads : nic.pool), *last = head;

	if (!head)
		return NULL;
	head->pkt_len = len;
	head->port = nic.port;
	done = part(head, from, len, nic.split ? split : UINT32_MAX);
	while (done < len) {
		struct rte_mbuf *next = nic.split ? rte_pktmbuf_alloc(nic.pool) : NULL;

		if (!next) {
			rte_pktmbuf_free(head);
			return NULL;
		}
		/* No headroom but in the first. */
		next->data_off = 0;
		done += part(next, from + done, len - done, UINT32_MAX);
		last->next = next;
		last = next;
		head->nb_segs++;
	}
	return head;
}

static uint16_t deliver(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count,
			uint16_t room, void *arg)
{
	uint16_t i, n = 0;

	for (i = 0; i < count; i++) {
		struct rte_mbuf *m = mbufs[i], *frame;

		frame = received(rte_pktmbuf_mtod(m, uint8_t *), m->pkt_len);
		if (frame) {
			frame->ol_flags |= m->ol_flags & ~RTE_MBUF_F_EXTERNAL;
			mbufs[n++] = frame;
		} else if (!nic.split && m->pkt_len > rte_pktmbuf_data_room_size(nic.pool)) {
			nic.errors++;
		} else {
			nic.no_buffer++;
		}
		rte_pktmbuf_free(m);
	}
	return n;
}

int rte_eth_dev_start(uint16_t port)
{
	int r = BEHIND(rte_eth_dev_start)(port);

	if (r == 0 && nic.bounce && nic.port == port) {
		nic.callback = rte_eth_add_rx_callback(port, 0, deliver, NULL);
		if (!nic.callback)
			return -ENOMEM;
	}
	return r;
}

int rte_eth_stats_get(uint16_t port, struct rte_eth_stats *stats)
{
	int r = BEHIND(rte_eth_stats_get)(port, stats);

	if (r == 0 && nic.bounce && nic.port == port) {
		stats->rx_nombuf += nic.no_buffer;
		stats->ierrors += nic.errors;
	}
	return r;
}

int rte_eth_dev_close(uint16_t port)
{
	int r;

	if (nic.callback && nic.port == port) {
		rte_eth_remove_rx_callback(port, 0, nic.callback);
		rte_free((void *)(uintptr_t)nic.callback);
	}
	r = BEHIND(rte_eth_dev_close)(port);
	if (nic.bounce && nic.port == port) {
		if (!rte_mempool_full(nic.bounce))
			fprintf(stderr, "gpunic: the device below keeps buffers\n");
		rte_mempool_free(nic.bounce);
		memset(&nic, 0, sizeof(nic));
	}
	return r;
}
