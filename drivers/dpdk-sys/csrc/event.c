/* What a driver reports of its own accord. */
#include <errno.h>
#include <rte_ethdev.h>
#include "shim.h"

static const enum rte_eth_event_type kinds[] = {
	RTE_ETH_EVENT_INTR_RESET,     RTE_ETH_EVENT_INTR_RMV,
	RTE_ETH_EVENT_ERR_RECOVERING, RTE_ETH_EVENT_RECOVERY_SUCCESS,
	RTE_ETH_EVENT_RECOVERY_FAILED,
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* On the driver's thread, often that of interrupts: it counts and calls nothing of DPDK. */
static int seen(uint16_t port, enum rte_eth_event_type kind, void *arg, void *ret)
{
	struct twd_events *events = arg;
	uint32_t *count;

	switch (kind) {
	case RTE_ETH_EVENT_INTR_RESET:
		count = &events->resets;
		break;
	case RTE_ETH_EVENT_INTR_RMV:
		count = &events->removals;
		break;
	case RTE_ETH_EVENT_ERR_RECOVERING:
		count = &events->recoveries;
		__atomic_store_n(&events->recovering, 1, __ATOMIC_RELEASE);
		break;
	case RTE_ETH_EVENT_RECOVERY_SUCCESS:
		count = &events->recovered;
		__atomic_store_n(&events->recovering, 0, __ATOMIC_RELEASE);
		break;
	case RTE_ETH_EVENT_RECOVERY_FAILED:
		count = &events->failed;
		__atomic_store_n(&events->recovering, 0, __ATOMIC_RELEASE);
		break;
	default:
		return 0;
	}
	__atomic_fetch_add(count, 1, __ATOMIC_RELEASE);
	return 0;
}

static int forget(uint16_t port, struct twd_events *events, size_t count)
{
	int failed = 0;

	/* All of them, also behind one that fails. */
	while (count-- > 0) {
		int r = rte_eth_dev_callback_unregister(port, kinds[count], seen, events);

		if (r < 0)
			failed = r;
	}
	return failed;
}

int twd_events_watch(uint16_t port, struct twd_events *events)
{
	for (size_t i = 0; i < KINDS; i++) {
		int r = rte_eth_dev_callback_register(port, kinds[i], seen, events);

		if (r < 0) {
			forget(port, events, i);
			return r;
		}
	}
	return 0;
}

int twd_events_forget(uint16_t port, struct twd_events *events)
{
	return forget(port, events, KINDS);
}
