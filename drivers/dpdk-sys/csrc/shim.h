/* What tensorwire needs of DPDK, as plain C: no structure and no inline function of DPDK is visible
 * from here on. The Rust side is src/ffi.rs; the two are changed together.
 *
 * Calls that can fail return 0 or a negative errno. Pointers that leave here as `void *` are opaque
 * and come back unchanged. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Packets that one burst call moves at most. */
#define TWD_BURST 64
/* Bytes of a name, with its end. */
#define TWD_NAME 64
/* Bytes of the longest header that a rule cuts off or puts. */
#define TWD_HEADER 64
/* Tunnels. */
#define TWD_VXLAN 1
#define TWD_GRE 2
#define TWD_NVGRE 3
/* Where the first cache line of an mbuf holds what is read per packet; asserted in burst.c. */
#define TWD_MBUF_BUF_ADDR 0
#define TWD_MBUF_DATA_OFF 16
#define TWD_MBUF_DATA_LEN 40

/* eal.c */
const char *twd_version(void);
const char *twd_error_text(int code);
int twd_eal_init(int argc, char **argv);
int twd_eal_cleanup(void);
int twd_iova_is_va(void);
/* 1: this thread was registered now; 0: it already was. */
int twd_thread_register(void);
void twd_thread_unregister(void);

/* device.c */
struct twd_port_info {
	char name[TWD_NAME];
	char driver[TWD_NAME];
	void *device;
	uint32_t min_rx_bytes;
	uint32_t max_rx_bytes;
	uint32_t max_mtu;
	int32_t socket;
	uint16_t max_rx_queues;
	uint16_t max_tx_queues;
	uint8_t mac[6];
	uint8_t timestamps;
	/* Rules are there again after a driver has set the port up anew by itself. */
	uint8_t keeps_rules;
	/* A frame may be received into two buffers of two pools, the first of a length of ours. */
	uint8_t splits;
	/* What it receives is written by this CPU. */
	uint8_t software;
};
struct twd_port_stats {
	uint64_t in_packets, out_packets, in_bytes, out_bytes;
	uint64_t in_missed, in_errors, out_errors, no_buffer;
};
struct twd_xstat {
	char name[TWD_NAME];
	uint64_t value;
};
int twd_device_probe(const char *devargs);
int twd_device_remove(void *device);
int twd_device_map(void *device, void *base, uint64_t iova, size_t len);
int twd_device_unmap(void *device, void *base, uint64_t iova, size_t len);
int twd_ring_create(const char *name, uint32_t size, void **ring);
void twd_ring_free(void *ring);
int twd_ring_port(const char *name, void *rx, void *tx, uint16_t *port);
int twd_port_by_name(const char *name, uint16_t *port);
int twd_port_info(uint16_t port, struct twd_port_info *info);
/* What is asked for besides queues; the first two are cleared where the port has them not. */
struct twd_port_options {
	uint8_t marks, timestamps;
	/* Frames are split; only for a port that does it. */
	uint8_t split;
};
int twd_port_configure(uint16_t port, uint16_t rx_queues, uint16_t tx_queues, uint32_t mtu,
		       struct twd_port_options *options);
int twd_port_adjust(uint16_t port, uint16_t *rx_ring, uint16_t *tx_ring);
int twd_port_rx_queue(uint16_t port, uint16_t queue, uint16_t ring, void *pool);
/* The first `split` bytes of a frame into buffers of `heads`, the rest into those of `pool`. */
int twd_port_rx_queue_split(uint16_t port, uint16_t queue, uint16_t ring, void *heads,
			    uint16_t split, void *pool);
int twd_port_tx_queue(uint16_t port, uint16_t queue, uint16_t ring);
int twd_port_start(uint16_t port);
int twd_port_stop(uint16_t port);
int twd_port_close(uint16_t port);
int twd_port_promiscuous(uint16_t port);
int twd_port_link(uint16_t port, uint32_t *mbps, uint8_t *up);
/* The clock that time stamps are of. */
int twd_port_clock(uint16_t port, uint64_t *ticks);
int twd_port_stats(uint16_t port, struct twd_port_stats *stats);
/* How many there are; at most `room` of them were written. */
int twd_port_xstats(uint16_t port, struct twd_xstat *out, uint32_t room);

/* memory.c */
struct twd_pool_range {
	uint64_t mbuf_first, mbuf_last;
	uint64_t data_first, data_last;
	uint32_t count;
};
int twd_memory_register(void *base, size_t len, size_t page);
int twd_memory_unregister(void *base, size_t len);
int twd_pool_create(const char *name, uint32_t count, uint32_t cache, uint16_t element, void *base,
		    uint64_t iova, size_t len, void **pool);
void twd_pool_free(void *pool);
void twd_pool_range(void *pool, struct twd_pool_range *range);
uint32_t twd_pool_available(void *pool);

/* burst.c */
struct twd_packet {
	void *mbuf;
	uint32_t len;
	uint32_t mark;
};
/* At most TWD_BURST. `split`: 0, or the bytes of a frame that lie in a first buffer. A frame that
 * lies otherwise is freed and counted in `segmented`. */
uint16_t twd_rx_burst(uint16_t port, uint16_t queue, struct twd_packet *out, uint16_t room,
		      uint16_t split, uint64_t *segmented);
/* Where the second part of a frame lies, and its bytes; 0 for a frame of one part. */
uint64_t twd_second(const void *mbuf, uint32_t *len);
void twd_free_bulk(void **mbufs, uint32_t count);
int twd_alloc_bulk(void *pool, void **mbufs, uint32_t count);
/* Makes an empty mbuf hold `len` bytes; NULL where they do not fit. */
uint8_t *twd_append(void *mbuf, uint16_t len);
/* Cuts `len` bytes off the front of an mbuf of one segment that has more. */
void twd_cut(void *mbuf, uint16_t len);
uint16_t twd_tx_burst(uint16_t port, uint16_t queue, void **mbufs, uint16_t count);
/* Where time stamps lie in an mbuf, and the flag that says that there is one. */
int twd_timestamp_field(int *offset, uint64_t *flag);
int twd_timestamp(const void *mbuf, int offset, uint64_t flag, uint64_t *ticks);

/* flow.c */
struct twd_flow_rule {
	uint16_t src_first, src_last;
	uint16_t dst_first, dst_last;
	uint16_t ipv4_len;
	uint8_t has_src, has_dst, has_len;
	uint8_t has_mark;
	uint16_t queue;
	uint32_t mark;
	/* Sent frames: no queue and no mark. */
	uint8_t egress;
	/* A tag: received frames have it and lose it, sent ones get it. */
	uint8_t vlan;
	uint16_t vlan_type, vlan_control;
	/* A tunnel that received frames come in: TWD_VXLAN, TWD_GRE, TWD_NVGRE, or 0. */
	uint8_t tunnel;
	/* The frame inside has an Ethernet header. */
	uint8_t inner_eth;
	uint8_t has_vni, has_outer_src, has_outer_dst, has_outer_udp_src;
	uint8_t outer_src[4], outer_dst[4];
	uint16_t outer_udp_src, outer_udp_dst;
	uint32_t vni;
	/* Bytes that are cut off the front, and bytes that are put there then. */
	uint8_t decap_len, encap_len;
	uint8_t decap[TWD_HEADER], encap[TWD_HEADER];
};
uint32_t twd_flow_rule_bytes(void);
int twd_flow_isolate(uint16_t port, int on);
int twd_flow_create(uint16_t port, const struct twd_flow_rule *rule, void **flow, char *message,
		    size_t room);
int twd_flow_destroy(uint16_t port, void *flow);

/* event.c */
/* How often a driver reported what, counted while it is watched; read with acquire. */
struct twd_events {
	uint32_t resets;     /* it asks for a reset of the port */
	uint32_t removals;   /* the device is gone */
	uint32_t recoveries; /* it has begun to set the port up anew by itself */
	uint32_t recovered;  /* it has done so */
	uint32_t failed;     /* it could not */
	uint32_t recovering; /* 1: it is about it. It may begin twice and end once. */
};
int twd_events_watch(uint16_t port, struct twd_events *events);
/* -EAGAIN: one is being counted just now; `events` must stay until this has returned 0. */
int twd_events_forget(uint16_t port, struct twd_events *events);
