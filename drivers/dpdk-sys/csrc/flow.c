/* Steering rules. */
#include <errno.h>
#include <string.h>
#include <rte_byteorder.h>
#include <rte_errno.h>
#include <rte_flow.h>
#include "shim.h"

int twd_flow_isolate(uint16_t port, int on)
{
	struct rte_flow_error error = { 0 };

	return rte_flow_isolate(port, on, &error) == 0 ? 0 : -rte_errno;
}

int twd_flow_create(uint16_t port, const struct twd_flow_rule *rule, void **flow, char *message,
		    size_t room)
{
	struct rte_flow_attr attr = { .ingress = 1 };
	struct rte_flow_item_ipv4 ip = { .hdr.total_length = rte_cpu_to_be_16(rule->ipv4_len) };
	struct rte_flow_item_ipv4 ip_mask = { .hdr.total_length = 0xffff };
	struct rte_flow_item_udp first = { 0 }, last = { 0 }, mask = { 0 };
	struct rte_flow_action_queue queue = { .index = rule->queue };
	struct rte_flow_action_mark mark = { .id = rule->mark };
	struct rte_flow_item items[4] = {
		{ .type = RTE_FLOW_ITEM_TYPE_ETH },
		{ .type = RTE_FLOW_ITEM_TYPE_IPV4 },
		{ .type = RTE_FLOW_ITEM_TYPE_UDP },
		{ .type = RTE_FLOW_ITEM_TYPE_END },
	};
	struct rte_flow_action actions[3] = { { 0 } };
	struct rte_flow_error error = { 0 };
	int range = 0, n = 0;

	if (rule->has_len) {
		items[1].spec = &ip;
		items[1].mask = &ip_mask;
	}
	if (rule->has_src) {
		first.hdr.src_port = rte_cpu_to_be_16(rule->src_first);
		last.hdr.src_port = rte_cpu_to_be_16(rule->src_last);
		mask.hdr.src_port = 0xffff;
		range |= rule->src_first != rule->src_last;
	}
	if (rule->has_dst) {
		first.hdr.dst_port = rte_cpu_to_be_16(rule->dst_first);
		last.hdr.dst_port = rte_cpu_to_be_16(rule->dst_last);
		mask.hdr.dst_port = 0xffff;
		range |= rule->dst_first != rule->dst_last;
	}
	if (rule->has_src || rule->has_dst) {
		items[2].spec = &first;
		items[2].mask = &mask;
		/* Where both ends are equal the field is left out: some drivers refuse it as such. */
		items[2].last = range ? &last : NULL;
	}
	if (rule->has_mark)
		actions[n++] = (struct rte_flow_action){ RTE_FLOW_ACTION_TYPE_MARK, &mark };
	actions[n++] = (struct rte_flow_action){ RTE_FLOW_ACTION_TYPE_QUEUE, &queue };
	actions[n] = (struct rte_flow_action){ RTE_FLOW_ACTION_TYPE_END, NULL };
	*flow = rte_flow_create(port, &attr, items, actions, &error);
	if (*flow)
		return 0;
	if (room) {
		strncpy(message, error.message ? error.message : "", room - 1);
		message[room - 1] = 0;
	}
	return rte_errno ? -rte_errno : -EIO;
}

int twd_flow_destroy(uint16_t port, void *flow)
{
	struct rte_flow_error error = { 0 };

	return rte_flow_destroy(port, flow, &error) == 0 ? 0 : -rte_errno;
}
