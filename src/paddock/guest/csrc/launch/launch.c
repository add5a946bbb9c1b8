/* paddock-launch: the last step on the host before a sandbox.
 *
 * The server starts it with posix_spawn, which costs the same however large the server is, and it turns itself into
 * the program that makes the sandbox. In this order, because each step takes away what the one before it needs:
 *
 *   1. join the cgroups             needs the server's rights over them
 *   2. close descriptors            everything above the last one that was handed over on purpose
 *   3. limits, signals, session     may need the server's rights
 *   4. become the sandbox's user    ends all rights over the host
 *   5. exec with an empty environment
 *
 * Any step that fails ends it: nothing ever runs with less around it than was asked for. The exit status is then 125,
 * and standard error says why.
 *
 * usage: paddock-launch [-g FILE]... [-u ID] [-f FILES] [-p PROCESSES] [-o SCORE] -k LAST -- PROGRAM NAME [ARGUMENT]...
 *
 *   -g FILE       write 0 (this process) to FILE: a cgroup's tasks or cgroup.procs
 *   -u ID         become user and group ID, without other groups
 *   -f FILES      limit on open descriptors; never above the hard limit that already holds
 *   -p PROCESSES  limit on processes of the user
 *   -o SCORE      what the kernel's out-of-memory killer adds to this process's badness
 *   -k LAST       keep descriptors 0 to LAST
 *
 * NAME becomes the program's argv[0]: the server knows its sandboxes by it.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static void fail(const char *what, const char *subject) {
    dprintf(2, "paddock-launch: %s%s%s: %s\n", what, subject ? " " : "", subject ? subject : "", strerror(errno));
    _exit(125);
}

static unsigned long number(const char *text) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || end == text || *end) {
        errno = EINVAL;
        fail("not a number:", text);
    }
    return value;
}

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        fail("open", path);
    size_t length = strlen(text);
    if (write(fd, text, length) != (ssize_t)length)
        fail("write", path);
    close(fd);
}

static void limit(int resource, rlim_t value, const char *name) {
    struct rlimit now;
    if (getrlimit(resource, &now) != 0)
        fail("getrlimit", name);
    if (now.rlim_max != RLIM_INFINITY && value > now.rlim_max)
        value = now.rlim_max;
    struct rlimit wanted = {value, value};
    if (setrlimit(resource, &wanted) != 0)
        fail("setrlimit", name);
}

static void become(uid_t id) {
    if (setgroups(0, NULL) != 0)
        fail("setgroups", NULL);
    if (setresgid(id, id, id) != 0)
        fail("setresgid", NULL);
    if (setresuid(id, id, id) != 0)
        fail("setresuid", NULL);
}

/* The server ignores SIGPIPE and may block signals; both would pass through exec. */
static void reset_signals(void) {
    const unsigned long plain[8] = {0}; /* SIG_DFL, for the C library's own signals too, which it hides */
    sigset_t none;
    sigemptyset(&none);
    for (int number = 1; number <= 64; number++)
        syscall(SYS_rt_sigaction, number, plain, NULL, 8);
    if (sigprocmask(SIG_SETMASK, &none, NULL) != 0)
        fail("sigprocmask", NULL);
}

static void close_above(unsigned last) {
    if (syscall(SYS_close_range, last + 1, UINT_MAX, 0) == 0)
        return;
    if (errno != ENOSYS)
        fail("close_range", NULL);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        fail("getrlimit", "nofile");
    for (rlim_t fd = last + 1; fd < files.rlim_max; fd++)
        close((int)fd);
}

int main(int argc, char **argv) {
    unsigned long user = 0, files = 0, processes = 0, last = 2;
    const char *score = NULL;
    int option;

    while ((option = getopt(argc, argv, "+g:u:f:p:o:k:")) != -1) {
        switch (option) {
        case 'g': write_file(optarg, "0"); break;
        case 'u': user = number(optarg); break;
        case 'f': files = number(optarg); break;
        case 'p': processes = number(optarg); break;
        case 'o': score = optarg; break;
        case 'k': last = number(optarg); break;
        default: return 125;
        }
    }
    if (optind + 1 >= argc) {
        errno = EINVAL;
        fail("no program to run", NULL);
    }

    if (score)
        write_file("/proc/self/oom_score_adj", score);
    /* Before the limit on descriptors: a lower one would hide open descriptors from the fallback loop. */
    close_above((unsigned)last);
    limit(RLIMIT_CORE, 0, "core");
    if (files)
        limit(RLIMIT_NOFILE, files, "nofile");
    if (processes)
        limit(RLIMIT_NPROC, processes, "nproc");
    reset_signals();
    umask(022);
    if (chdir("/") != 0)
        fail("chdir", "/");
    /* Fails only for a process-group leader, which a process spawned into the server's group is not. */
    if (setsid() < 0)
        fail("setsid", NULL);
    if (user)
        become((uid_t)user);

    char *environment[] = {NULL};
    execve(argv[optind], argv + optind + 1, environment);
    fail("exec", argv[optind]);
}
