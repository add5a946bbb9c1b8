/* A stage for the guest's own code: links are real sockets, execs are real, their processes are played. */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ## Stand-ins for main.c, shepherd.c, tree.c and builtin.c */

int poller;
bool is_init, shutting_down;
struct source signals = {.kind = SOURCE_SIGNALS, .fd = -1};
static pid_t next_pid = 1 << 30;

pid_t fork_adjusted(void)
{
    if (below(50) == 0) {
        errno = EAGAIN;
        return -1;
    }
    return ++next_pid;
}

void shepherd_main(const struct child_plan *plan, int report)
{
    (void)plan;
    (void)report;
    abort();
}

void builtin_main(const struct child_plan *plan)
{
    (void)plan;
    abort();
}

void shepherd_read(struct exec *e) { (void)e; }
int tree_signal(pid_t root, int number) { return root > 1 << 30 && number > 0; }
void orphans_sweep(void) {}

/* A guest that was not adopted dies with its link: the stage is simply cleared. */
void shutdown_begin(uint32_t grace, int exit_code)
{
    (void)grace;
    (void)exit_code;
    shutting_down = true;
}

_Noreturn void stage_fail(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
    abort();
}

/* ## Links */

int stage_open(enum link_state how)
{
    int ends[2], size = 8192;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends))
        abort();
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size); /* so that frames are cut in the middle */
    link_open(ends[0], how);
    return ends[1];
}

void stage_step(void)
{
    host.readable = host.writable = host.state != LINK_NONE;
    link_read();
    streams_pump();
    link_flush();
    execs_bury();
}

void stage_clear(void)
{
    shutting_down = true;
    link_close();
    for (struct exec *e = execs, *next; e; e = next) {
        next = e->next;
        if (!e->released)
            exec_release(e);
        if (e->pid)
            exec_reaped(e, 0, &(struct rusage){0});
    }
    streams_pump();
    execs_bury();
    CHECK(!execs && !exec_count && !host.queue);
    log_trim();
    memset(&marks, 0, sizeof marks);
    host.adopted = shutting_down = false;
}

/* ## Processes */

unsigned char stage_byte(uint32_t channel, uint64_t position)
{
    return (unsigned char)((channel * 31 + position) * 2654435761u >> 13);
}

void stage_write(struct exec *e, int stream, size_t size)
{
    size_t room, space = e->window - (size_t)(e->log.end - e->log.acked);
    if (e->state != RUNNING || e->released)
        return;
    size = size < space ? size : space;
    unsigned char *data = log_room(&e->log, &room);
    size = size < room ? size : room;
    for (size_t i = 0; i < size; i++)
        data[i] = stage_byte(e->channel, e->log.end + i);
    if (size)
        log_add(&e->log, stream, size);
    log_unused(&e->log);
    *(stream == 1 ? &e->stdout_bytes : &e->stderr_bytes) += size;
    say(e);
}

void stage_end(struct exec *e)
{
    if (e->state == FORKED && !(e->flags & BUILTIN))
        exec_started(e, e->pid + 1, 1);
    else if (e->state == RUNNING && !e->over && !(e->flags & BUILTIN) && below(3))
        exec_ended(e, (int)below(2) * 256, NULL, 2);
    else if (e->pid)
        exec_reaped(e, 0, &(struct rusage){0});
}

struct exec *stage_pick(void)
{
    struct exec *e = execs;
    for (uint32_t n = below(exec_count); n && e; n--)
        e = e->next;
    return e;
}

/* ## A START payload */

static size_t put_string(unsigned char *at, const char *text)
{
    put32(at, (uint32_t)strlen(text));
    memcpy(at + 4, text, strlen(text));
    return 4 + strlen(text);
}

size_t stage_start(unsigned char *p, uint32_t flags, uint32_t window)
{
    unsigned char *at = p;
    memset(p, 0, 64);
    put32(at, flags);
    put32(at + 4, UINT32_MAX);
    put32(at + 8, UINT32_MAX);
    put32(at + 16, below(3) * 1000000);
    put32(at + 24, window);
    at += 28;
    uint16_t limits = (uint16_t)below(3);
    put16(at, limits);
    memset(at + 2, 1, limits * 17u);
    at += 2 + limits * 17u;
    uint32_t count = 1 + below(3);
    put32(at, count);
    at += 4;
    while (count--)
        at += put_string(at, "word");
    put32(at, 1);
    at += 4;
    at += put_string(at, "PATH=/bin");
    at += put_string(at, "/");
    at += put_string(at, below(2) ? "metadata" : "");
    return (size_t)(at - p);
}

/* The build of the harness names this for kill(2): the pids on this stage belong to nobody. */
int fuzz_no_kill(pid_t pid, int number);
int fuzz_no_kill(pid_t pid, int number)
{
    return pid && number ? 0 : -1;
}
