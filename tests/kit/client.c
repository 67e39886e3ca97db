/* Stands for a fresh Python process: asks the fork server beside it for a forked one.

   The server gets the arguments, the environment, all open descriptors and what else a process
   inherits; its answer is the wait status of the forked process, which becomes our own.
   What a forked process would not show (see `needs_true_start`) runs in a fresh one. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_DESCRIPTORS 253 /* the kernel's limit for one message */
#define FIRST_OWN 64
#define SIGNALS 32

extern char **environ;

static int server = -1;
static struct rlimit inherited; /* Of descriptors: we need more than a test may allow the command. */
static char *text;
static size_t length, room;

static void fail(const char *what) {
    fprintf(stderr, "fork client: %s: %s\n", what, strerror(errno));
    exit(71);
}

static void put(const char *word) {
    size_t size = strlen(word) + 1;
    if (length + size > room) {
        room = 2 * (length + size) + 65536;
        if (!(text = realloc(text, room))) fail("memory");
    }
    memcpy(text + length, word, size);
    length += size;
}

static void put_number(unsigned long long number) {
    char word[32];
    snprintf(word, sizeof word, "%llu", number);
    put(word);
}

/* A program by its folder's path, which is that of the Python that runs the tests. */
static void start_truly(const char *program, char **argv) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", BIN, program);
    argv[0] = path;
    setrlimit(RLIMIT_NOFILE, &inherited);
    execv(path, argv);
    fail(path);
}

/* Whether the server is of another user, or of a session with another terminal. */
static int is_foreign(void) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(server, SOL_SOCKET, SO_PEERCRED, &peer, &size)) fail("getsockopt");
    return peer.uid != geteuid() || getsid(peer.pid) != getsid(0);
}

/* What Python reads when it starts, and a room that the server's own size would not fit in. */
static int needs_true_start(int is_isolated) {
    static const char *const harmless[] = {
        "PYTHONWARNINGS=error", "PYTHONDONTWRITEBYTECODE=", "PYTHONUNBUFFERED=", NULL};
    const int kinds[] = {RLIMIT_AS, RLIMIT_DATA};
    if (getenv("WTXTGIT_TRUE_START")) return 1;
    for (char **variable = environ; !is_isolated && *variable; variable++) {
        int known = strncmp(*variable, "PYTHON", 6) != 0;
        for (const char *const *one = harmless; *one && !known; one++)
            known = strncmp(*variable, *one, strlen(*one)) == 0;
        if (!known) return 1;
    }
    for (int i = 0; i < 2; i++) {
        struct rlimit limit;
        if (getrlimit(kinds[i], &limit) || limit.rlim_cur != RLIM_INFINITY) return 1;
    }
    return 0;
}

static void forward(int number) {
    int before = errno;
    char byte = (char)number;
    (void)!send(server, &byte, 1, MSG_NOSIGNAL);
    errno = before;
}

static int descriptors(int *numbers) {
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    int count = 0;
    if (!folder) fail("/proc/self/fd");
    while ((entry = readdir(folder))) {
        int number = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || number == dirfd(folder) || number == server) continue;
        if (count == MOST_DESCRIPTORS - 1) { errno = EMFILE; fail("descriptors"); }
        numbers[count++] = number;
    }
    closedir(folder);
    return count;
}

static int connect_beside(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ssize_t size = readlink("/proc/self/exe", address.sun_path, sizeof address.sun_path - 16);
    char *end;
    if (size < 0) fail("/proc/self/exe");
    end = strrchr(address.sun_path, '/');
    strcpy(end + 1, "socket");
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0) fail("socket");
    /* Out of the way of numbers that mean something, and of 0 to 2, closed on purpose. */
    server = fcntl(made, F_DUPFD_CLOEXEC, FIRST_OWN);
    if (server < 0) fail("socket");
    close(made);
    if (connect(server, (struct sockaddr *)&address, sizeof address)) {
        /* Another user's folder. */
        if (errno == EACCES) return -1;
        fail(address.sun_path);
    }
    return 0;
}

/* All that a process inherits but descriptors, which go with the first byte. */
static void describe(const char *kind, int argc, char **argv, const int *numbers, int count) {
    sigset_t blocked;
    unsigned long long mask = 0, ignored = 0;
    mode_t mode = umask(0);
    char path[64];
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int number = 1; number < SIGNALS; number++) {
        struct sigaction action;
        if (sigismember(&blocked, number)) mask |= 1ULL << number;
        if (!sigaction(number, NULL, &action) && action.sa_handler == SIG_IGN)
            ignored |= 1ULL << number;
    }
    put(kind);
    put_number(mode);
    put_number(getppid());
    put_number(mask);
    put_number(ignored);
    for (int one = 0; one < RLIM_NLIMITS; one++) {
        struct rlimit limit;
        if (getrlimit(one, &limit)) fail("getrlimit");
        if (one == RLIMIT_NOFILE) limit = inherited;
        snprintf(path, sizeof path, "%llu %llu", (unsigned long long)limit.rlim_cur,
                 (unsigned long long)limit.rlim_max);
        put(path);
    }
    put("");
    for (int i = 0; i < count; i++) put_number(numbers[i]);
    put("");
    put_number(argc);
    for (int i = 0; i < argc; i++) put(argv[i]);
    for (char **variable = environ; *variable; variable++) put(*variable);
}

/* The current folder goes as one more descriptor: it may have no path. */
static void send_all(int *numbers, int count) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int) * MOST_DESCRIPTORS)];
    } control = {0};
    uint32_t size = (uint32_t)length;
    struct iovec piece = {&size, sizeof size};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.room};
    int folder = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) fail("current folder");
    numbers[count++] = folder;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(&control.header), numbers, sizeof(int) * count);
    if (sendmsg(server, &message, MSG_NOSIGNAL) != sizeof size) fail("sendmsg");
    for (size_t sent = 0; sent < length;) {
        ssize_t more = send(server, text + sent, length - sent, MSG_NOSIGNAL);
        if (more < 0) fail("send");
        sent += more;
    }
    /* The other end of a pipe waits for the forked process alone. */
    for (int i = 0; i < count; i++) close(numbers[i]);
}

static int forked(const char *kind, int argc, char **argv) {
    static const int passed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE};
    int numbers[MOST_DESCRIPTORS], status, count;
    struct sigaction action = {.sa_handler = forward, .sa_flags = SA_RESTART};
    count = descriptors(numbers);
    describe(kind, argc, argv, numbers, count);
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
        struct sigaction old;
        sigaction(passed_on[i], NULL, &old);
        if (old.sa_handler != SIG_IGN) sigaction(passed_on[i], &action, NULL);
    }
    send_all(numbers, count);
    sigprocmask(SIG_SETMASK, &before, NULL);
    ssize_t size;
    do size = recv(server, &status, sizeof status, MSG_WAITALL);
    while (size < 0 && errno == EINTR);
    if (size != sizeof status) _exit(71);
    if (WIFSIGNALED(status)) {
        struct rlimit none = {0, 0};
        sigset_t one;
        setrlimit(RLIMIT_CORE, &none);
        signal(WTERMSIG(status), SIG_DFL);
        sigemptyset(&one);
        sigaddset(&one, WTERMSIG(status));
        raise(WTERMSIG(status));
        sigprocmask(SIG_UNBLOCK, &one, NULL);
    }
    return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    char *name = (char *)getauxval(AT_EXECFN), own[4096], *base;
    int first = 1, is_isolated = 0, is_python, is_dask;
    /* Not from our name, which is that of a script that we are the interpreter of. */
    struct rlimit most;
    ssize_t size = readlink("/proc/self/exe", own, sizeof own - 1);
    if (size < 0) fail("/proc/self/exe");
    own[size] = 0;
    if (getrlimit(RLIMIT_NOFILE, &inherited)) fail("getrlimit");
    most = (struct rlimit){inherited.rlim_max, inherited.rlim_max};
    setrlimit(RLIMIT_NOFILE, &most);
    base = strrchr(own, '/') + 1;
    is_python = strcmp(base, "python") == 0;
    is_dask = strcmp(base, "dask") == 0;
    if (is_python) {
        for (; first < argc; first++) {
            if (!strcmp(argv[first], "-E") || !strcmp(argv[first], "-I")) is_isolated = 1;
            else if (strcmp(argv[first], "-P")) break;
        }
        if (first + 1 >= argc || strcmp(argv[first], "-m") || strcmp(argv[first + 1], "wtxtgit"))
            start_truly("python", argv);
        argv[first + 1] = name;
        first++;
    } else {
        argv[0] = name;
        first = 0;
    }
    /* The one variable of Python's that servers of Dask are given is heeded by ours. */
    if (needs_true_start(is_isolated || is_dask) || connect_beside() || is_foreign()) {
        if (is_python) argv[first] = "wtxtgit";
        start_truly(is_python ? "python" : base, argv);
    }
    return forked(is_isolated ? "isolated" : "open", argc - first, argv + first);
}
