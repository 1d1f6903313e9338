/* The environment: start, end, threads. */
#include <errno.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_version.h>
#include "shim.h"

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "DPDK 22.11 or later is needed"
#endif

const char *twd_version(void)
{
	return rte_version();
}

const char *twd_error_text(int code)
{
	return rte_strerror(code < 0 ? -code : code);
}

int twd_eal_init(int argc, char **argv)
{
	/* The number of arguments it has read, or -1 with rte_errno. */
	int r = rte_eal_init(argc, argv);
	if (r >= 0)
		return 0;
	return rte_errno ? -rte_errno : -EINVAL;
}

int twd_eal_cleanup(void)
{
	return rte_eal_cleanup();
}

int twd_iova_is_va(void)
{
	return rte_eal_iova_mode() == RTE_IOVA_VA;
}

int twd_thread_register(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 0;
	return rte_thread_register() == 0 ? 1 : -rte_errno;
}

void twd_thread_unregister(void)
{
	rte_thread_unregister();
}
