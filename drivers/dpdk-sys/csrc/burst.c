/* Packets in and out. */
#include <errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include "shim.h"

/* src/ffi.rs reads these three without a call. */
_Static_assert(offsetof(struct rte_mbuf, buf_addr) == TWD_MBUF_BUF_ADDR, "buf_addr has moved");
_Static_assert(offsetof(struct rte_mbuf, data_off) == TWD_MBUF_DATA_OFF, "data_off has moved");
_Static_assert(offsetof(struct rte_mbuf, data_len) == TWD_MBUF_DATA_LEN, "data_len has moved");
_Static_assert(sizeof(((struct rte_mbuf *)0)->data_off) == 2, "data_off is of another size");
_Static_assert(sizeof(((struct rte_mbuf *)0)->data_len) == 2, "data_len is of another size");

/* Whether a frame lies where it was asked for: in one buffer, or split at that byte. */
static inline int in_place(const struct rte_mbuf *m, uint16_t split)
{
	if (likely(m->nb_segs == 1))
		return split == 0 || m->data_len <= split;
	return m->nb_segs == 2 && split != 0 && m->data_len == split;
}

uint16_t twd_rx_burst(uint16_t port, uint16_t queue, struct twd_packet *out, uint16_t room,
		      uint16_t split, uint64_t *segmented)
{
	struct rte_mbuf *mbufs[TWD_BURST];
	uint16_t got, i, n = 0;

	got = rte_eth_rx_burst(port, queue, mbufs, room < TWD_BURST ? room : TWD_BURST);
	for (i = 0; i < got; i++) {
		struct rte_mbuf *m = mbufs[i];

		if (unlikely(!in_place(m, split))) {
			rte_pktmbuf_free(m);
			++*segmented;
			continue;
		}
		out[n].mbuf = m;
		out[n].len = m->pkt_len;
		out[n].mark = m->ol_flags & RTE_MBUF_F_RX_FDIR_ID ? m->hash.fdir.hi : 0;
		n++;
	}
	return n;
}

uint64_t twd_second(const void *mbuf, uint32_t *len)
{
	const struct rte_mbuf *m = ((const struct rte_mbuf *)mbuf)->next;

	*len = m ? m->data_len : 0;
	return m ? (uintptr_t)m->buf_addr + m->data_off : 0;
}

void twd_free_bulk(void **mbufs, uint32_t count)
{
	rte_pktmbuf_free_bulk((struct rte_mbuf **)mbufs, count);
}

int twd_alloc_bulk(void *pool, void **mbufs, uint32_t count)
{
	return rte_pktmbuf_alloc_bulk(pool, (struct rte_mbuf **)mbufs, count);
}

uint8_t *twd_append(void *mbuf, uint16_t len)
{
	return (uint8_t *)rte_pktmbuf_append(mbuf, len);
}

void twd_cut(void *mbuf, uint16_t len)
{
	rte_pktmbuf_adj(mbuf, len);
}

uint16_t twd_tx_burst(uint16_t port, uint16_t queue, void **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, (struct rte_mbuf **)mbufs, count);
}

int twd_timestamp_field(int *offset, uint64_t *flag)
{
	return rte_mbuf_dyn_rx_timestamp_register(offset, flag);
}

int twd_timestamp(const void *mbuf, int offset, uint64_t flag, uint64_t *ticks)
{
	const struct rte_mbuf *m = mbuf;

	if (!(m->ol_flags & flag))
		return -ENOENT;
	*ticks = *RTE_MBUF_DYNFIELD(m, offset, rte_mbuf_timestamp_t *);
	return 0;
}
