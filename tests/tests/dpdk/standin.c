/* What no virtual device of DPDK has, put into one from outside: loaded in front of the program
 * (LD_PRELOAD), it stands between the program and DPDK. It calls what a driver calls, so what the
 * program sees is DPDK's own way of telling it.
 *
 * STANDIN_STAMPS=MS       ports stamp what they receive with a time that long ago, by a clock of
 *                         25 MHz that began long before the process
 * STANDIN_EVENT=KIND,MS   that event of the first port (`enum rte_eth_event_type`), so long after
 *                         the port was started */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <rte_ethdev.h>
#include <rte_mbuf_dyn.h>

/* For drivers that are built apart from DPDK. */
void *rte_eth_dev_get_by_name(const char *name);
int rte_eth_dev_callback_process(void *device, enum rte_eth_event_type kind, void *ret);

static char started[RTE_ETH_NAME_MAX_LEN];

static void *event(void *text)
{
	int kind = 0, ms = 0;

	if (sscanf(text, "%d,%d", &kind, &ms) == 2) {
		usleep(ms * 1000);
		fprintf(stderr, "standin: event %d of %s\n", kind, started);
		rte_eth_dev_callback_process(rte_eth_dev_get_by_name(started), kind, NULL);
	}
	return NULL;
}

#define BEHIND(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static uint64_t ticks(uint64_t ago_ms)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return 1ULL << 60 | (now.tv_sec * 25000000ULL + now.tv_nsec / 40 - ago_ms * 25000);
}

int rte_eth_read_clock(uint16_t port, uint64_t *clock)
{
	if (!getenv("STANDIN_STAMPS"))
		return BEHIND(rte_eth_read_clock)(port, clock);
	*clock = ticks(0);
	return 0;
}

int rte_eth_dev_info_get(uint16_t port, struct rte_eth_dev_info *info)
{
	int r = BEHIND(rte_eth_dev_info_get)(port, info);

	if (r == 0 && getenv("STANDIN_STAMPS"))
		info->rx_offload_capa |= RTE_ETH_RX_OFFLOAD_TIMESTAMP;
	return r;
}

static int stamps_on;

int rte_eth_dev_configure(uint16_t port, uint16_t rx, uint16_t tx, const struct rte_eth_conf *asked)
{
	struct rte_eth_conf conf = *asked;

	/* The driver itself has not got it. */
	if (getenv("STANDIN_STAMPS") && conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_TIMESTAMP) {
		conf.rxmode.offloads &= ~RTE_ETH_RX_OFFLOAD_TIMESTAMP;
		stamps_on = 1;
	}
	return BEHIND(rte_eth_dev_configure)(port, rx, tx, &conf);
}

static int field;
static uint64_t flag;

static uint16_t stamp(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count,
		      uint16_t room, void *ago_ms)
{
	for (uint16_t i = 0; i < count; i++) {
		*RTE_MBUF_DYNFIELD(mbufs[i], field, rte_mbuf_timestamp_t *) =
			ticks((uintptr_t)ago_ms);
		mbufs[i]->ol_flags |= flag;
	}
	return count;
}

int rte_eth_dev_start(uint16_t port)
{
	int (*start)(uint16_t) = BEHIND(rte_eth_dev_start);
	char *text = getenv("STANDIN_EVENT");
	int r = start(port);
	pthread_t thread;

	if (r == 0 && stamps_on) {
		rte_mbuf_dyn_rx_timestamp_register(&field, &flag);
		if (!rte_eth_add_rx_callback(port, 0, stamp,
					     (void *)(uintptr_t)atoi(getenv("STANDIN_STAMPS"))))
			fprintf(stderr, "standin: no callback\n");
	}
	if (r == 0 && text && !started[0] && rte_eth_dev_get_name_by_port(port, started) == 0 &&
	    pthread_create(&thread, NULL, event, text) == 0)
		pthread_detach(thread);
	return r;
}
