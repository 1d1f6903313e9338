// rte_ring in memory of our own: its functions are inline, so they need a few lines of C, and no
// environment of DPDK (rte_eal_init) is started.
#include <stdlib.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>

// One producer, one consumer; holds count - 1 items. NULL if it cannot be had.
void *peer_ring_new(unsigned item_bytes, unsigned count)
{
    ssize_t bytes = rte_ring_get_memsize_elem(item_bytes, count);
    if (bytes < 0)
        return NULL;
    void *ring = aligned_alloc(128, ((size_t)bytes + 127) / 128 * 128);
    if (ring && rte_ring_init(ring, "peer", count, RING_F_SP_ENQ | RING_F_SC_DEQ) != 0) {
        free(ring);
        return NULL;
    }
    return ring;
}

void peer_ring_free(void *ring)
{
    free(ring);
}

// The size of an item is a constant in each branch, as it is in a program with one kind of item.
unsigned peer_ring_push(void *ring, const void *items, unsigned item_bytes, unsigned n)
{
    if (item_bytes == 8)
        return rte_ring_sp_enqueue_burst_elem(ring, items, 8, n, NULL);
    return rte_ring_sp_enqueue_burst_elem(ring, items, 64, n, NULL);
}

unsigned peer_ring_pop(void *ring, void *out, unsigned item_bytes, unsigned n)
{
    if (item_bytes == 8)
        return rte_ring_sc_dequeue_burst_elem(ring, out, 8, n, NULL);
    return rte_ring_sc_dequeue_burst_elem(ring, out, 64, n, NULL);
}
