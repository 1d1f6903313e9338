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

uint32_t twd_flow_rule_bytes(void)
{
	return sizeof(struct twd_flow_rule);
}

/* What rules point to while they are made. */
struct parts {
	struct rte_flow_item items[10];
	struct rte_flow_action actions[8];
	int n_items, n_actions;
	struct rte_flow_item_ipv4 ip, ip_mask, outer, outer_mask;
	struct rte_flow_item_udp first, last, mask, tunnel_udp, tunnel_udp_mask;
	struct rte_flow_item_vxlan vxlan, vxlan_mask;
	struct rte_flow_item_nvgre nvgre, nvgre_mask;
	struct rte_flow_action_queue queue;
	struct rte_flow_action_mark mark;
	struct rte_flow_action_of_push_vlan push;
	struct rte_flow_action_of_set_vlan_vid vid;
	struct rte_flow_action_of_set_vlan_pcp pcp;
	struct rte_flow_action_raw_decap decap;
	struct rte_flow_action_raw_encap encap;
};

static void item(struct parts *p, enum rte_flow_item_type type, const void *spec, const void *last,
		 const void *mask)
{
	p->items[p->n_items++] = (struct rte_flow_item){
		.type = type, .spec = spec, .last = last, .mask = mask,
	};
}

static void action(struct parts *p, enum rte_flow_action_type type, const void *conf)
{
	p->actions[p->n_actions++] = (struct rte_flow_action){ .type = type, .conf = conf };
}

static void put24(uint8_t *to, uint32_t number)
{
	to[0] = number >> 16;
	to[1] = number >> 8;
	to[2] = number;
}

/* The headers of the tunnel around a frame. */
static void around(struct parts *p, const struct twd_flow_rule *rule)
{
	static const uint8_t number[3] = { 0xff, 0xff, 0xff };

	if (rule->has_outer_src) {
		memcpy(&p->outer.hdr.src_addr, rule->outer_src, 4);
		p->outer_mask.hdr.src_addr = UINT32_MAX;
	}
	if (rule->has_outer_dst) {
		memcpy(&p->outer.hdr.dst_addr, rule->outer_dst, 4);
		p->outer_mask.hdr.dst_addr = UINT32_MAX;
	}
	item(p, RTE_FLOW_ITEM_TYPE_IPV4, &p->outer, NULL, &p->outer_mask);
	switch (rule->tunnel) {
	case TWD_VXLAN:
		p->tunnel_udp.hdr.dst_port = rte_cpu_to_be_16(rule->outer_udp_dst);
		p->tunnel_udp_mask.hdr.dst_port = 0xffff;
		if (rule->has_outer_udp_src) {
			p->tunnel_udp.hdr.src_port = rte_cpu_to_be_16(rule->outer_udp_src);
			p->tunnel_udp_mask.hdr.src_port = 0xffff;
		}
		item(p, RTE_FLOW_ITEM_TYPE_UDP, &p->tunnel_udp, NULL, &p->tunnel_udp_mask);
		if (rule->has_vni) {
			put24(p->vxlan.vni, rule->vni);
			memcpy(p->vxlan_mask.vni, number, 3);
		}
		item(p, RTE_FLOW_ITEM_TYPE_VXLAN, &p->vxlan, NULL, &p->vxlan_mask);
		break;
	case TWD_NVGRE:
		if (rule->has_vni) {
			put24(p->nvgre.tni, rule->vni);
			memcpy(p->nvgre_mask.tni, number, 3);
		}
		item(p, RTE_FLOW_ITEM_TYPE_NVGRE, &p->nvgre, NULL, &p->nvgre_mask);
		break;
	default:
		item(p, RTE_FLOW_ITEM_TYPE_GRE, NULL, NULL, NULL);
	}
	if (rule->inner_eth)
		item(p, RTE_FLOW_ITEM_TYPE_ETH, NULL, NULL, NULL);
}

/* The frame itself: IPv4 and UDP. */
static void frame(struct parts *p, const struct twd_flow_rule *rule)
{
	int range = 0;

	p->ip.hdr.total_length = rte_cpu_to_be_16(rule->ipv4_len);
	p->ip_mask.hdr.total_length = 0xffff;
	item(p, RTE_FLOW_ITEM_TYPE_IPV4, rule->has_len ? &p->ip : NULL, NULL,
	     rule->has_len ? &p->ip_mask : NULL);
	if (rule->has_src) {
		p->first.hdr.src_port = rte_cpu_to_be_16(rule->src_first);
		p->last.hdr.src_port = rte_cpu_to_be_16(rule->src_last);
		p->mask.hdr.src_port = 0xffff;
		range |= rule->src_first != rule->src_last;
	}
	if (rule->has_dst) {
		p->first.hdr.dst_port = rte_cpu_to_be_16(rule->dst_first);
		p->last.hdr.dst_port = rte_cpu_to_be_16(rule->dst_last);
		p->mask.hdr.dst_port = 0xffff;
		range |= rule->dst_first != rule->dst_last;
	}
	/* Where both ends are equal `last` is left out: some drivers refuse it as such. */
	if (rule->has_src || rule->has_dst)
		item(p, RTE_FLOW_ITEM_TYPE_UDP, &p->first, range ? &p->last : NULL, &p->mask);
	else
		item(p, RTE_FLOW_ITEM_TYPE_UDP, NULL, NULL, NULL);
}

/* What changes the front of a frame: a received one loses its tag before its tunnel, a sent one
 * gets its tunnel before its tag. */
static void headers(struct parts *p, const struct twd_flow_rule *rule)
{
	if (rule->vlan && !rule->egress)
		action(p, RTE_FLOW_ACTION_TYPE_OF_POP_VLAN, NULL);
	if (rule->decap_len) {
		p->decap.data = (uint8_t *)(uintptr_t)rule->decap;
		p->decap.size = rule->decap_len;
		action(p, RTE_FLOW_ACTION_TYPE_RAW_DECAP, &p->decap);
	}
	if (rule->encap_len) {
		p->encap.data = (uint8_t *)(uintptr_t)rule->encap;
		p->encap.size = rule->encap_len;
		action(p, RTE_FLOW_ACTION_TYPE_RAW_ENCAP, &p->encap);
	}
	if (rule->vlan && rule->egress) {
		p->push.ethertype = rte_cpu_to_be_16(rule->vlan_type);
		p->vid.vlan_vid = rte_cpu_to_be_16(rule->vlan_control & 0xfff);
		p->pcp.vlan_pcp = rule->vlan_control >> 13;
		action(p, RTE_FLOW_ACTION_TYPE_OF_PUSH_VLAN, &p->push);
		action(p, RTE_FLOW_ACTION_TYPE_OF_SET_VLAN_VID, &p->vid);
		action(p, RTE_FLOW_ACTION_TYPE_OF_SET_VLAN_PCP, &p->pcp);
	}
}

int twd_flow_create(uint16_t port, const struct twd_flow_rule *rule, void **flow, char *message,
		    size_t room)
{
	struct rte_flow_attr attr = { .ingress = !rule->egress, .egress = rule->egress };
	struct rte_flow_error error = { 0 };
	struct parts p = { .queue.index = rule->queue, .mark.id = rule->mark };

	item(&p, RTE_FLOW_ITEM_TYPE_ETH, NULL, NULL, NULL);
	if (rule->vlan && !rule->egress)
		item(&p, RTE_FLOW_ITEM_TYPE_VLAN, NULL, NULL, NULL);
	if (rule->tunnel)
		around(&p, rule);
	frame(&p, rule);
	item(&p, RTE_FLOW_ITEM_TYPE_END, NULL, NULL, NULL);
	headers(&p, rule);
	if (rule->has_mark)
		action(&p, RTE_FLOW_ACTION_TYPE_MARK, &p.mark);
	if (!rule->egress)
		action(&p, RTE_FLOW_ACTION_TYPE_QUEUE, &p.queue);
	action(&p, RTE_FLOW_ACTION_TYPE_END, NULL);
	*flow = rte_flow_create(port, &attr, p.items, p.actions, &error);
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
