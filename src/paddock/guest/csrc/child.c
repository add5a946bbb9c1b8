/* From fork to exec: what a command or a builtin is given before it runs. */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct rlimit files_limit;

void close_from(unsigned first)
{
    struct rlimit most;
    if (!syscall(SYS_close_range, first, ~0U, 0) || getrlimit(RLIMIT_NOFILE, &most))
        return;
    for (unsigned fd = first; fd < most.rlim_cur; fd++)
        close((int)fd);
}

/* Close everything but 0, 1, 2 and, when it is one, `keep`, which becomes 3. Our own 0 to 2 are /dev/null, so no
 * descriptor of the plan is overwritten before it is used. */
void child_stdio(const struct child_plan *plan, int keep)
{
    dup2(plan->in, 0);
    dup2(plan->out, 1);
    dup2(plan->err, 2);
    if (keep >= 0 && keep != 3)
        dup3(keep, 3, O_CLOEXEC);
    close_from(keep >= 0 ? 4 : 3);
}

static void signals_default(void)
{
    const int changed[] = {SIGPIPE, SIGHUP, SIGINT};
    struct sigaction plain = {.sa_handler = SIG_DFL};
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++)
        sigaction(changed[i], &plain, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static int set_limits(const struct start *s)
{
    struct rlimit mine;
    if (getrlimit(RLIMIT_NOFILE, &mine) == 0 && mine.rlim_cur != files_limit.rlim_cur)
        setrlimit(RLIMIT_NOFILE, &files_limit);
    for (uint32_t i = 0; i < s->limit_count; i++) {
        struct rlimit r = {s->limits[i].soft, s->limits[i].hard};
        if (setrlimit(s->limits[i].resource, &r))
            return errno;
    }
    return 0;
}

/* By system call: the C library would look for threads to change as well. */
static int set_user(uint32_t uid, uint32_t gid)
{
    uint32_t same = UINT32_MAX;
    bool other_gid = gid != same && gid != getegid();
    bool other_uid = uid != same && uid != geteuid();
    if (!other_gid && !other_uid)
        return 0;
    if (syscall(SYS_setgroups, 0, NULL) && errno != EPERM)
        return errno;
    if (other_gid && syscall(SYS_setresgid, gid, gid, gid))
        return errno;
    if (other_uid && syscall(SYS_setresuid, uid, uid, uid))
        return errno;
    return 0;
}

int child_rights(const struct start *s, bool terminal, int *stage)
{
    int error;
    *stage = STAGE_SET_UP;
    signals_default();
    setsid();
    if (terminal && ioctl(0, TIOCSCTTY, 0))
        return errno;
    *stage = STAGE_LIMITS;
    if ((error = set_limits(s)))
        return error;
    *stage = STAGE_USER;
    if ((error = set_user(s->uid, s->gid)))
        return error;
    *stage = STAGE_DIRECTORY;
    return s->directory[0] && chdir(s->directory) ? errno : 0;
}

/* ## Finding the program */

static int try_exec(const struct start *s, const char *path)
{
    execve(path, s->argv, s->environment);
    if (errno != ENOEXEC)
        return errno;
    /* A script without `#!`: what a shell would do with it. The free slot before argv takes the shell's name. */
    char *first = s->argv[0];
    s->argv[0] = (char *)path;
    s->argv[-1] = (char *)"/bin/sh";
    execve("/bin/sh", s->argv - 1, s->environment);
    s->argv[0] = first;
    return ENOEXEC;
}

static const char *search_path(const struct start *s)
{
    for (char **e = s->environment; *e; e++)
        if (!strncmp(*e, "PATH=", 5))
            return *e + 5;
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

/* Returns only on failure, with errno. */
int child_exec(const struct start *s)
{
    const char *name = s->argv[0];
    if (!*name)
        return ENOENT;
    if (strchr(name, '/'))
        return try_exec(s, name);
    int found = ENOENT;
    char path[4096];
    for (const char *at = search_path(s); ; at++) {
        size_t size = strcspn(at, ":");
        int written = size ? snprintf(path, sizeof path, "%.*s/%s", (int)size, at, name)
                           : snprintf(path, sizeof path, "%s", name);
        if (written > 0 && (size_t)written < sizeof path) {
            int error = try_exec(s, path);
            if (error == EACCES)
                found = EACCES;
            else if (error != ENOENT && error != ENOTDIR)
                return error;
        }
        at += size;
        if (!*at)
            return found;
    }
}
