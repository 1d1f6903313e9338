/* A kernel without receive offload, loaded in front of the program: UDP_GRO is an option that it does
 * not know (udp(7)), as before Linux 5.0. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define GRO 104

int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
    static int (*real)(int, int, int, const void *, socklen_t);

    if (level == IPPROTO_UDP && name == GRO) {
        errno = ENOPROTOOPT;
        return -1;
    }
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "setsockopt");
    return real(fd, level, name, value, size);
}
