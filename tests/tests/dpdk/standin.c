/* What no virtual device of DPDK has, put into one from outside: loaded in front of the program
 * (LD_PRELOAD), it stands between the program and DPDK. It calls what a driver calls, so what the
 * program sees is DPDK's own way of telling it.
 *
 * STANDIN_EVENT=KIND,MS   that event of the first port (`enum rte_eth_event_type`), so long after
 *                         the port was started */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <rte_ethdev.h>

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

int rte_eth_dev_start(uint16_t port)
{
	int (*start)(uint16_t) = (int (*)(uint16_t))dlsym(RTLD_NEXT, "rte_eth_dev_start");
	char *text = getenv("STANDIN_EVENT");
	int r = start(port);
	pthread_t thread;

	if (r == 0 && text && !started[0] && rte_eth_dev_get_name_by_port(port, started) == 0 &&
	    pthread_create(&thread, NULL, event, text) == 0)
		pthread_detach(thread);
	return r;
}
