/* A disk that fails, for a process and all that it starts, as LD_PRELOAD. WTXTGIT_TEST_FAILING is
   `FILE N ERROR`: in FILE all of them count the calls that change files. The N-th fails, with EIO
   alone, as if a sector could not be written; with ENOSPC so do all that need space from then on. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic long *count;
static long failing;
static int failure;

__attribute__((constructor)) static void begin(void) {
    char file[4096];
    const char *told = getenv("WTXTGIT_TEST_FAILING");
    if (!told || sscanf(told, "%4095s %ld %d", file, &failing, &failure) != 3)
        return;
    int (*opened)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    int descriptor = opened(file, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return;
    void *shared = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (shared != MAP_FAILED)
        count = shared;
    close(descriptor);
}

static int fails(int needs_space) {
    if (!count)
        return 0;
    long number = atomic_fetch_add(count, 1) + 1;
    if (!failing || number < failing || (failure == EIO && number > failing))
        return 0;
    if (failure == ENOSPC && !needs_space)
        return 0;
    errno = failure;
    return 1;
}

static int is_file(int descriptor) {
    struct stat status;
    return !fstat(descriptor, &status) && S_ISREG(status.st_mode);
}

#define REAL(name, ...) ((typeof(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)
#define ON_FILE(type, name, space, parameters, ...) \
    type name parameters { return is_file(fd) && fails(space) ? -1 : REAL(name, __VA_ARGS__); }
#define ON_PATH(name, space, parameters, ...) \
    int name parameters { return fails(space) ? -1 : REAL(name, __VA_ARGS__); }
#define OPENED(name, parameters, ...) \
    int name parameters { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = va_arg(more, mode_t); \
        va_end(more); \
        int makes = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE; \
        return makes && fails(1) ? -1 : REAL(name, __VA_ARGS__, mode); \
    }

ON_FILE(ssize_t, write, 1, (int fd, const void *data, size_t size), fd, data, size)
ON_FILE(ssize_t, writev, 1, (int fd, const struct iovec *data, int pieces), fd, data, pieces)
ON_FILE(ssize_t, pwrite, 1, (int fd, const void *data, size_t size, off_t at), fd, data, size, at)
ON_FILE(ssize_t, pwrite64, 1, (int fd, const void *data, size_t size, off64_t at), fd, data, size, at)
ON_FILE(int, ftruncate, 1, (int fd, off_t size), fd, size)
ON_FILE(int, ftruncate64, 1, (int fd, off64_t size), fd, size)
ON_FILE(int, fsync, 1, (int fd), fd)
ON_FILE(int, fdatasync, 1, (int fd), fd)
ON_PATH(rename, 1, (const char *from, const char *to), from, to)
ON_PATH(renameat, 1, (int old, const char *from, int new, const char *to), old, from, new, to)
ON_PATH(link, 1, (const char *from, const char *to), from, to)
ON_PATH(linkat, 1, (int old, const char *from, int new, const char *to, int flags), old, from, new,
        to, flags)
ON_PATH(mkdir, 1, (const char *path, mode_t mode), path, mode)
ON_PATH(mkdirat, 1, (int at, const char *path, mode_t mode), at, path, mode)
ON_PATH(unlink, 0, (const char *path), path)
ON_PATH(unlinkat, 0, (int at, const char *path, int flags), at, path, flags)
OPENED(open, (const char *path, int flags, ...), path, flags)
OPENED(open64, (const char *path, int flags, ...), path, flags)
OPENED(openat, (int at, const char *path, int flags, ...), at, path, flags)
OPENED(openat64, (int at, const char *path, int flags, ...), at, path, flags)
