/* Execs: the table, and how one begins and ends.
 *
 *   FORKED    its shepherd runs; nothing is known of the command yet
 *   RUNNING   the command runs
 *   DRAINING  the command has ended; what it left in its pipes is read (KILL and timeout: once the whole tree is gone)
 *   ENDED     all of that is read, the end position is known
 *
 * An exec leaves the table when the host has released it and our child, the shepherd, is reaped: until then its pid
 * must be told from an orphan's. */
#include "bytes.h"
#include "guest.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BUCKETS = 64 };

struct exec *execs;
unsigned exec_count;
static struct exec *last_exec, *graves;
static struct exec *channels[BUCKETS], *pids[BUCKETS];

/* ## The table */

struct exec *exec_find(uint32_t channel)
{
    struct exec *e = channels[channel % BUCKETS];
    while (e && e->channel != channel)
        e = e->by_channel;
    return e && !e->released ? e : NULL;
}

struct exec *exec_of_pid(pid_t pid)
{
    struct exec *e = pids[(unsigned)pid % BUCKETS];
    while (e && e->pid != pid)
        e = e->by_pid;
    return e;
}

static void pid_known(struct exec *e, pid_t pid)
{
    e->pid = pid;
    e->by_pid = pids[(unsigned)pid % BUCKETS];
    pids[(unsigned)pid % BUCKETS] = e;
}

static void pid_forgotten(struct exec *e)
{
    struct exec **at = &pids[(unsigned)e->pid % BUCKETS];
    while (*at != e)
        at = &(*at)->by_pid;
    *at = e->by_pid;
    e->pid = 0;
}

static struct exec *exec_new(uint32_t channel, const struct start *s)
{
    struct exec *e = calloc(1, sizeof *e);
    if (!e || (s->metadata_size && !(e->metadata = malloc(s->metadata_size)))) {
        free(e);
        return NULL;
    }
    if (s->metadata_size)
        memcpy(e->metadata, s->metadata, s->metadata_size);
    e->metadata_size = s->metadata_size;
    e->channel = channel;
    e->flags = s->flags;
    e->window = s->window;
    e->grace = s->grace;
    e->credit = STDIN_CREDIT;
    e->resumed = true;
    e->in = (struct source){SOURCE_STDIN, -1, e};
    e->out = (struct source){SOURCE_STDOUT, -1, e};
    e->err = (struct source){SOURCE_STDERR, -1, e};
    e->report = (struct source){SOURCE_REPORT, -1, e};
    e->previous = last_exec;
    *(last_exec ? &last_exec->next : &execs) = e;
    last_exec = e;
    e->by_channel = channels[channel % BUCKETS];
    channels[channel % BUCKETS] = e;
    exec_count++;
    return e;
}

static void exec_bury(struct exec *e)
{
    if (e->buried || !e->released || e->pid)
        return;
    link_detach(e);
    unsay(e);
    streams_close(e);
    source_close(&e->report);
    timer_cancel(&e->timeout);
    timer_cancel(&e->kill);
    struct exec **at = &channels[e->channel % BUCKETS];
    while (*at != e)
        at = &(*at)->by_channel;
    *at = e->by_channel;
    *(e->previous ? &e->previous->next : &execs) = e->next;
    *(e->next ? &e->next->previous : &last_exec) = e->previous;
    exec_count--;
    e->buried = true;
    e->queue_next = graves;
    graves = e;
}

void execs_bury(void)
{
    while (graves) {
        struct exec *e = graves;
        graves = e->queue_next;
        log_free(&e->log);
        free(e->held);
        free(e->metadata);
        free(e);
    }
}

/* ## The beginning */

static bool refuse(uint32_t channel, int error)
{
    unsigned char *p = link_frame(channel, EXIT, 72);
    uint64_t now = wall_ns();
    memset(p, 0, 72);
    p[0] = NOT_STARTED;
    p[1] = STAGE_SET_UP;
    put32(p + 4, (uint32_t)error);
    put64(p + 32, now);
    put64(p + 40, now);
    return true;
}

static int open_streams(struct exec *e, const struct start *s, struct child_plan *plan)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
    if (s->flags & TERMINAL) {
        int slave;
        e->out.fd = terminal_open(s, &slave);
        if (e->out.fd < 0)
            return errno;
        plan->in = plan->out = plan->err = slave;
        e->in.fd = dup_cloexec(e->out.fd);
        return e->in.fd < 0 ? errno : 0;
    }
    bool fine = pipe_pair(out, 0);
    if (fine) {
        e->out.fd = out[0];
        plan->out = out[1];
        fine = pipe_pair(err, 0);
    }
    if (fine) {
        e->err.fd = err[0];
        plan->err = err[1];
    }
    if (fine && s->flags & STDIN_WANTED) {
        fine = pipe_pair(in, 1);
        e->in.fd = in[1];
        plan->in = in[0];
    }
    return fine ? 0 : errno;
}

static void close_plan(struct child_plan *plan)
{
    if (plan->in > 2)
        close(plan->in);
    if (plan->out > 2 && plan->out != plan->in)
        close(plan->out);
    if (plan->err > 2 && plan->err != plan->out)
        close(plan->err);
}

/* So that another user's command can open its /dev/stdout, or its terminal. */
static void hand_over(const struct child_plan *plan, const struct start *s)
{
    const int fds[] = {plan->in, plan->out, plan->err};
    if (s->uid == UINT32_MAX || s->uid == geteuid())
        return;
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] > 2 && fchown(fds[i], s->uid, s->gid))
            return; /* without the right to, or the need */
}

static bool watch_streams(struct exec *e)
{
    return (e->out.fd < 0 || watch_fd(&e->out, EPOLLIN | EPOLLET)) &&
           (e->err.fd < 0 || watch_fd(&e->err, EPOLLIN | EPOLLET)) &&
           (e->report.fd < 0 || watch_fd(&e->report, EPOLLIN | EPOLLET));
}

static int launch(struct exec *e, struct start *s)
{
    struct child_plan plan = {s, e, 0, -1, -1};
    int report[2] = {-1, -1}, error = open_streams(e, s, &plan);
    if (!error && !(s->flags & BUILTIN) && !pipe_pair(report, 0))
        error = errno;
    e->report.fd = report[0];
    if (!error && !watch_streams(e))
        error = errno;
    if (!error) {
        hand_over(&plan, s);
        pid_t pid = fork_adjusted();
        if (pid == 0) {
            if (s->flags & BUILTIN)
                builtin_main(&plan);
            shepherd_main(&plan, report[1]);
        }
        if (pid < 0)
            error = errno;
        else
            pid_known(e, pid);
    }
    close_plan(&plan);
    if (report[1] >= 0)
        close(report[1]);
    return error;
}

static void timed_out(struct timer *t)
{
    struct exec *e = OWNER(t, struct exec, timeout);
    if (e->state <= RUNNING)
        exec_kill(e, e->grace, TIMED_OUT);
}

bool exec_start(uint32_t channel, struct start *s)
{
    if (exec_count >= MAX_EXECS || shutting_down)
        return refuse(channel, shutting_down ? ESHUTDOWN : EAGAIN);
    struct exec *e = exec_new(channel, s);
    if (!e)
        return refuse(channel, ENOMEM);
    int error = launch(e, s);
    if (error) {
        exec_failed(e, STAGE_SET_UP, error);
        return true;
    }
    if (s->timeout)
        timer_set(&e->timeout, s->timeout, timed_out);
    if (s->flags & BUILTIN)
        exec_started(e, e->pid, wall_ns());
    return true;
}

void exec_started(struct exec *e, pid_t command, uint64_t at)
{
    e->command = command;
    e->started_at = at;
    e->state = RUNNING;
    e->started = e->started_due = true;
    say(e);
    streams_ready(e);
}

/* ## The end */

static void begin_drain(struct exec *e)
{
    e->state = DRAINING;
    timer_cancel(&e->timeout);
    source_close(&e->in);
    streams_drain(e);
}

void exec_failed(struct exec *e, int stage, int error)
{
    e->outcome = NOT_STARTED;
    e->stage = (uint8_t)stage;
    e->code = error;
    e->finished_at = wall_ns();
    if (!e->started_at)
        e->started_at = e->finished_at;
    e->over = true;
    streams_close(e);
    begin_drain(e);
}

void exec_ended(struct exec *e, int status, const struct rusage *usage, uint64_t at)
{
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    e->over = true;
    e->outcome = number ? SIGNALED : EXITED;
    e->code = number ? number : WEXITSTATUS(status);
    if (e->cause) {
        e->outcome = e->cause;
        e->code = number ? -number : WEXITSTATUS(status);
    }
    e->finished_at = at;
    if (!e->started_at)
        e->started_at = at;
    if (usage) {
        e->user_us = (uint64_t)usage->ru_utime.tv_sec * 1000000 + (uint64_t)usage->ru_utime.tv_usec;
        e->system_us = (uint64_t)usage->ru_stime.tv_sec * 1000000 + (uint64_t)usage->ru_stime.tv_usec;
        e->max_rss = (uint64_t)usage->ru_maxrss;
    }
    if (!e->cause || !e->pid)
        begin_drain(e);
}

/* Everything is read: the end position stands. */
void exec_drained(struct exec *e)
{
    e->state = ENDED;
    e->exit_due = true;
    if (!e->pid)
        streams_close(e);
    say(e);
}

/* Our child is gone: a builtin has ended, or a shepherd with all of its tree. A shepherd that was killed leaves its
 * tree to us. */
void exec_reaped(struct exec *e, int status, const struct rusage *usage)
{
    bool builtin = e->flags & BUILTIN;
    if (!builtin)
        shepherd_read(e);
    pid_forgotten(e);
    timer_cancel(&e->kill);
    if (!builtin && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
        orphans_sweep();
    if (builtin)
        exec_ended(e, status, usage, wall_ns());
    else if (!e->over)
        exec_ended(e, WIFSIGNALED(status) ? status : SIGKILL, NULL, wall_ns());
    else if (e->state <= RUNNING)
        begin_drain(e);
    else if (e->state == ENDED)
        streams_close(e);
    source_close(&e->report);
    exec_bury(e);
}

/* A builtin is not left to go on: it would take the end of its input for the end of the file. */
void exec_release(struct exec *e)
{
    if (e->flags & BUILTIN && e->state <= RUNNING)
        exec_kill(e, 0, KILLED);
    e->released = true;
    link_detach(e);
    unsay(e);
    source_close(&e->in);
    log_free(&e->log);
    streams_ready(e);
    exec_bury(e);
}

void execs_link_lost(void)
{
    for (struct exec *e = execs, *next; e; e = next) {
        next = e->next;
        e->resumed = false;
        unsay(e);
        if (e->flags & TRANSIENT && !e->released) {
            if (e->state <= RUNNING)
                exec_kill(e, 0, KILLED);
            exec_release(e);
        }
    }
}
