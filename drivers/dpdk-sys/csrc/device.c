/* Devices, ports and their queues. */
#include <errno.h>
#include <string.h>
#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ring.h>
#include "shim.h"

/* A frame in two buffers. Some drivers (mlx5) want to be asked for both. */
#define SPLIT (RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT | RTE_ETH_RX_OFFLOAD_SCATTER)

int twd_device_probe(const char *devargs)
{
	return rte_dev_probe(devargs);
}

int twd_device_remove(void *device)
{
	return rte_dev_remove(device);
}

int twd_device_map(void *device, void *base, uint64_t iova, size_t len)
{
	return rte_dev_dma_map(device, base, iova, len) == 0 ? 0 : -rte_errno;
}

int twd_device_unmap(void *device, void *base, uint64_t iova, size_t len)
{
	return rte_dev_dma_unmap(device, base, iova, len) == 0 ? 0 : -rte_errno;
}

int twd_ring_create(const char *name, uint32_t size, void **ring)
{
	/* One thread sends and one receives. EXACT: a ring of `size` holds `size` frames. */
	unsigned int flags = RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ;

	*ring = rte_ring_create(name, size, SOCKET_ID_ANY, flags);
	return *ring ? 0 : -rte_errno;
}

void twd_ring_free(void *ring)
{
	rte_ring_free(ring);
}

int twd_ring_port(const char *name, void *rx, void *tx, uint16_t *port)
{
	struct rte_ring *in = rx, *out = tx;
	int r = rte_eth_from_rings(name, &in, 1, &out, 1, 0);

	if (r < 0)
		return rte_errno ? -rte_errno : -EIO;
	*port = (uint16_t)r;
	return 0;
}

int twd_port_by_name(const char *name, uint16_t *port)
{
	return rte_eth_dev_get_port_by_name(name, port);
}

int twd_port_info(uint16_t port, struct twd_port_info *info)
{
	struct rte_eth_dev_info dev;
	struct rte_ether_addr mac;
	int r = rte_eth_dev_info_get(port, &dev);

	if (r < 0)
		return r;
	memset(info, 0, sizeof(*info));
	if (rte_eth_dev_get_name_by_port(port, info->name) < 0)
		info->name[0] = 0;
	if (dev.driver_name)
		strncpy(info->driver, dev.driver_name, TWD_NAME - 1);
	info->device = dev.device;
	info->min_rx_bytes = dev.min_rx_bufsize;
	info->max_rx_bytes = dev.max_rx_pktlen;
	info->max_mtu = dev.max_mtu;
	info->socket = rte_eth_dev_socket_id(port);
	info->max_rx_queues = dev.max_rx_queues;
	info->max_tx_queues = dev.max_tx_queues;
	info->timestamps = (dev.rx_offload_capa & RTE_ETH_RX_OFFLOAD_TIMESTAMP) != 0;
	info->splits = (dev.rx_offload_capa & SPLIT) == SPLIT && dev.rx_seg_capa.multi_pools &&
		       dev.rx_seg_capa.max_nseg >= 2;
	info->software = dev.device && strcmp(rte_bus_name(rte_dev_bus(dev.device)), "vdev") == 0;
	info->keeps_rules = (dev.dev_capa & RTE_ETH_DEV_CAPA_FLOW_RULE_KEEP) != 0;
	/* A port without an address of its own has all zeros. */
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(info->mac, mac.addr_bytes, sizeof(info->mac));
	return 0;
}
_Static_assert(RTE_ETH_NAME_MAX_LEN <= TWD_NAME, "the name of a port fits");

int twd_port_configure(uint16_t port, uint16_t rx_queues, uint16_t tx_queues, uint32_t mtu,
		       struct twd_port_options *options)
{
	struct rte_eth_conf conf = { 0 };
	struct rte_eth_dev_info dev;
	int r = rte_eth_dev_info_get(port, &dev);

	if (r < 0)
		return r;
	if (options->marks) {
		/* Before configure, as its documentation asks. */
		uint64_t features = RTE_ETH_RX_METADATA_USER_MARK;

		r = rte_eth_rx_metadata_negotiate(port, &features);
		/* ENOTSUP: the driver negotiates nothing and delivers marks as it can. */
		options->marks =
			r == -ENOTSUP || (r == 0 && (features & RTE_ETH_RX_METADATA_USER_MARK));
	}
	/* 0: the port's own MTU stays. */
	conf.rxmode.mtu = mtu;
	options->timestamps =
		options->timestamps && (dev.rx_offload_capa & RTE_ETH_RX_OFFLOAD_TIMESTAMP);
	if (options->timestamps)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_TIMESTAMP;
	if (options->split)
		conf.rxmode.offloads |= SPLIT;
	/* Without it some drivers (mlx5) do not report that the device is gone. */
	conf.intr_conf.rmv = dev.dev_flags && (*dev.dev_flags & RTE_ETH_DEV_INTR_RMV) != 0;
	return rte_eth_dev_configure(port, rx_queues, tx_queues, &conf);
}

int twd_port_adjust(uint16_t port, uint16_t *rx_ring, uint16_t *tx_ring)
{
	return rte_eth_dev_adjust_nb_rx_tx_desc(port, rx_ring, tx_ring);
}

int twd_port_rx_queue(uint16_t port, uint16_t queue, uint16_t ring, void *pool)
{
	return rte_eth_rx_queue_setup(port, queue, ring, (unsigned int)rte_eth_dev_socket_id(port),
				      NULL, pool);
}

int twd_port_rx_queue_split(uint16_t port, uint16_t queue, uint16_t ring, void *heads,
			    uint16_t split, void *pool)
{
	/* The second begins where its buffer does, and holds what that holds: both are zero. */
	union rte_eth_rxseg parts[2] = {
		{ .split = { .mp = heads, .length = split } },
		{ .split = { .mp = pool } },
	};
	struct rte_eth_dev_info dev;
	struct rte_eth_rxconf conf;
	int r = rte_eth_dev_info_get(port, &dev);

	if (r < 0)
		return r;
	conf = dev.default_rxconf;
	conf.offloads |= SPLIT;
	conf.rx_seg = parts;
	conf.rx_nseg = 2;
	return rte_eth_rx_queue_setup(port, queue, ring, (unsigned int)rte_eth_dev_socket_id(port),
				      &conf, NULL);
}

int twd_port_tx_queue(uint16_t port, uint16_t queue, uint16_t ring)
{
	return rte_eth_tx_queue_setup(port, queue, ring, (unsigned int)rte_eth_dev_socket_id(port),
				      NULL);
}

int twd_port_start(uint16_t port)
{
	return rte_eth_dev_start(port);
}

int twd_port_stop(uint16_t port)
{
	return rte_eth_dev_stop(port);
}

int twd_port_close(uint16_t port)
{
	return rte_eth_dev_close(port);
}

int twd_port_promiscuous(uint16_t port)
{
	return rte_eth_promiscuous_enable(port);
}

int twd_port_link(uint16_t port, uint32_t *mbps, uint8_t *up)
{
	struct rte_eth_link link;
	int r;

	/* What is left of a removed device keeps answering with its last state. */
	if (rte_eth_dev_is_removed(port))
		return -ENODEV;
	r = rte_eth_link_get_nowait(port, &link);
	if (r < 0)
		return r;
	*mbps = link.link_speed;
	*up = link.link_status == RTE_ETH_LINK_UP;
	return 0;
}

int twd_port_clock(uint16_t port, uint64_t *ticks)
{
	return rte_eth_read_clock(port, ticks);
}

int twd_port_stats(uint16_t port, struct twd_port_stats *stats)
{
	struct rte_eth_stats s;
	int r = rte_eth_stats_get(port, &s);

	if (r < 0)
		return r;
	*stats = (struct twd_port_stats){
		.in_packets = s.ipackets, .out_packets = s.opackets,
		.in_bytes = s.ibytes, .out_bytes = s.obytes,
		.in_missed = s.imissed, .in_errors = s.ierrors,
		.out_errors = s.oerrors, .no_buffer = s.rx_nombuf,
	};
	return 0;
}

/* Statistics of its own that a port has at most, as far as we look. */
#define XSTATS 512

int twd_port_xstats(uint16_t port, struct twd_xstat *out, uint32_t room)
{
	static __thread struct rte_eth_xstat_name names[XSTATS];
	static __thread struct rte_eth_xstat values[XSTATS];
	int count = rte_eth_xstats_get_names(port, names, XSTATS);
	int got, i;

	if (count < 0 || count > XSTATS)
		return count < 0 ? count : -E2BIG;
	got = rte_eth_xstats_get(port, values, XSTATS);
	if (got < 0)
		return got;
	for (i = 0; i < got && (uint32_t)i < room; i++) {
		/* A value names its name. */
		uint64_t at = values[i].id;

		memset(&out[i], 0, sizeof(out[i]));
		if (at < (uint64_t)count)
			strncpy(out[i].name, names[at].name, TWD_NAME - 1);
		out[i].value = values[i].value;
	}
	return got;
}
