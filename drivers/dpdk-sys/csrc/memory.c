/* Memory of ours as packet memory. */
#include <errno.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include "shim.h"

int twd_memory_register(void *base, size_t len, size_t page)
{
	/* NULL: no table of bus addresses, they are the virtual ones. */
	return rte_extmem_register(base, len, NULL, 0, page) == 0 ? 0 : -rte_errno;
}

int twd_memory_unregister(void *base, size_t len)
{
	return rte_extmem_unregister(base, len) == 0 ? 0 : -rte_errno;
}

int twd_pool_create(const char *name, uint32_t count, uint32_t cache, uint16_t element, void *base,
		    uint64_t iova, size_t len, void **pool)
{
	struct rte_pktmbuf_extmem memory = {
		.buf_ptr = base, .buf_iova = iova, .buf_len = len, .elt_size = element,
	};

	*pool = rte_pktmbuf_pool_create_extbuf(name, count, cache, 0, element, SOCKET_ID_ANY,
					       &memory, 1);
	if (*pool)
		return 0;
	return rte_errno ? -rte_errno : -ENOMEM;
}

void twd_pool_free(void *pool)
{
	rte_mempool_free(pool);
}

static void widen(struct rte_mempool *pool, void *arg, void *object, unsigned int index)
{
	struct twd_pool_range *range = arg;
	struct rte_mbuf *mbuf = object;
	uint64_t at = (uintptr_t)mbuf, first = (uintptr_t)mbuf->buf_addr;
	uint64_t last = first + mbuf->buf_len;

	if (at < range->mbuf_first)
		range->mbuf_first = at;
	if (at > range->mbuf_last)
		range->mbuf_last = at;
	if (first < range->data_first)
		range->data_first = first;
	if (last > range->data_last)
		range->data_last = last;
	range->count++;
}

void twd_pool_range(void *pool, struct twd_pool_range *range)
{
	*range = (struct twd_pool_range){ .mbuf_first = UINT64_MAX, .data_first = UINT64_MAX };
	rte_mempool_obj_iter(pool, widen, range);
}

uint32_t twd_pool_available(void *pool)
{
	return rte_mempool_avail_count(pool);
}
