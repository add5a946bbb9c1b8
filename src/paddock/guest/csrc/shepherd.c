/* The shepherd: the process above each command. As the subreaper of everything the command starts it keeps the tree
 * together, tells the guest how the command ended, and lives until nothing of the tree is left. It owns nothing: the
 * guest does the killing, and does not believe a shepherd about anything but its own exec. */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPORT_FD = 3 };

static int score_fd = -1;
static char base_score[8];

/* /proc/self/oom_score_adj cannot be opened by a process that is not dumpable, so main opens it before that. Children
 * inherit the score: ours is raised for the moment of the fork. */
void oom_prepare(void)
{
    score_fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    if (score_fd < 0)
        return;
    ssize_t size = read(score_fd, base_score, sizeof base_score - 1);
    if (size <= 0 || atoi(base_score) >= 500) { /* children are killed first as it is */
        close(score_fd);
        score_fd = -1;
    }
}

pid_t fork_adjusted(void)
{
    if (score_fd >= 0 && pwrite(score_fd, "500", 3, 0) < 0) {
        close(score_fd);
        score_fd = -1;
    }
    pid_t pid = fork();
    int error = errno;
    if (pid && score_fd >= 0 && pwrite(score_fd, base_score, strlen(base_score), 0) < 0) {
        close(score_fd);
        score_fd = -1;
    }
    errno = error;
    return pid;
}

/* ## In the shepherd */

static void tell(const struct report *r)
{
    while (write(REPORT_FD, r, sizeof *r) < 0 && errno == EINTR)
        ;
}

/* The command runs in our memory, as after vfork, until it execs: so it can leave its failure here. */
static volatile struct { int stage, error; } failure;

static pid_t start_command(const struct child_plan *plan)
{
    const struct start *s = plan->start;
    pid_t pid = vfork();
    if (pid == 0) {
        int stage = STAGE_SET_UP;
        int error = child_rights(s, s->flags & TERMINAL, &stage);
        if (!error) {
            stage = STAGE_EXEC;
            error = child_exec(s);
        }
        failure.stage = stage;
        failure.error = error;
        _exit(127);
    }
    if (pid < 0) {
        failure.stage = STAGE_SET_UP;
        failure.error = errno;
    }
    return pid;
}

_Noreturn void shepherd_main(const struct child_plan *plan, int report)
{
    struct report r = {.kind = REPORT_STARTED};
    child_stdio(plan, report);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t command = start_command(plan);
    r.pid = (uint32_t)command;
    r.at = wall_ns();
    if (failure.error) {
        r.kind = REPORT_FAILED;
        r.status = failure.stage;
        r.error = failure.error;
    }
    tell(&r);
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    for (;;) {
        int status;
        struct rusage usage;
        pid_t pid = wait4(-1, &status, 0, &usage);
        if (pid < 0 && errno == ECHILD)
            _exit(0);
        if (pid != command || failure.error)
            continue;
        r = (struct report){
            .kind = REPORT_ENDED,
            .pid = (uint32_t)command,
            .status = status,
            .at = wall_ns(),
            .user_us = (uint64_t)usage.ru_utime.tv_sec * 1000000 + (uint64_t)usage.ru_utime.tv_usec,
            .system_us = (uint64_t)usage.ru_stime.tv_sec * 1000000 + (uint64_t)usage.ru_stime.tv_usec,
            .max_rss = (uint64_t)usage.ru_maxrss,
        };
        tell(&r);
    }
}

/* ## In the guest */

static void take_report(struct exec *e, const struct report *r)
{
    if (e->over)
        return;
    if (r->kind == REPORT_STARTED && e->state == FORKED && (int32_t)r->pid > 1) {
        exec_started(e, (pid_t)r->pid, r->at);
    } else if (r->kind == REPORT_FAILED && e->state == FORKED) {
        bool known = r->status >= STAGE_SET_UP && r->status <= STAGE_EXEC;
        exec_failed(e, known ? r->status : STAGE_SET_UP, r->error > 0 && r->error < 4096 ? r->error : EIO);
    } else if (r->kind == REPORT_ENDED && e->state == RUNNING) {
        struct rusage usage = {0};
        usage.ru_utime.tv_sec = (time_t)(r->user_us / 1000000);
        usage.ru_utime.tv_usec = (suseconds_t)(r->user_us % 1000000);
        usage.ru_stime.tv_sec = (time_t)(r->system_us / 1000000);
        usage.ru_stime.tv_usec = (suseconds_t)(r->system_us % 1000000);
        usage.ru_maxrss = (long)r->max_rss;
        exec_ended(e, r->status, &usage, r->at);
    }
}

void shepherd_read(struct exec *e)
{
    struct report r;
    while (e->report.fd >= 0) {
        ssize_t size = read(e->report.fd, &r, sizeof r);
        if (size == (ssize_t)sizeof r)
            take_report(e, &r);
        else if (size < 0 && errno == EINTR)
            continue;
        else if (size < 0 && errno == EAGAIN)
            return;
        else
            source_close(&e->report);
    }
}
