/* Output of pipes and terminals: read when there is something and the exec's window allows it. Descriptors are watched
 * edge-triggered; `out_ready` and `err_ready` remember an edge until the descriptor has been read dry, so a full
 * window costs no system calls. */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum {
    TURN = 262144,           /* what one exec may read before others have their turn */
    GROW_AT = 262144,        /* a process that wrote this much gets a larger pipe */
    GROWN_PIPE = 1 << 20,
    TERMINAL_REST = 1 << 18, /* more than a terminal can hold */
};

static struct exec *ready, **ready_end = &ready;

/* ## Descriptors */

bool watch_fd(struct source *s, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = s};
    return epoll_ctl(poller, EPOLL_CTL_ADD, s->fd, &event) == 0;
}

/* Removed from the poller by name: a child that was just forked still has a copy, which would keep it there. */
void source_close(struct source *s)
{
    if (s->fd < 0)
        return;
    epoll_ctl(poller, EPOLL_CTL_DEL, s->fd, NULL);
    close(s->fd);
    s->fd = -1;
}

bool pipe_pair(int ends[2], int ours)
{
    if (pipe2(ends, O_CLOEXEC))
        return false;
    fcntl(ends[ours], F_SETFL, O_NONBLOCK | (ours ? O_WRONLY : O_RDONLY));
    return true;
}

int dup_cloexec(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static int slave_open(int master)
{
    int number, unlock = 0;
    char path[32];
    if (ioctl(master, TIOCSPTLCK, &unlock))
        return -1;
    int fd = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0 || ioctl(master, TIOCGPTN, &number))
        return fd;
    snprintf(path, sizeof path, "/dev/pts/%d", number);
    return open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

int terminal_open(const struct start *s, int *slave)
{
    struct winsize size = {.ws_row = s->rows, .ws_col = s->columns};
    struct termios modes;
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (master < 0)
        return -1;
    *slave = slave_open(master);
    if (*slave < 0) {
        int error = errno;
        close(master);
        errno = error;
        return -1;
    }
    ioctl(master, TIOCSWINSZ, &size);
    if (!tcgetattr(*slave, &modes)) {
        modes.c_iflag |= IUTF8;
        tcsetattr(*slave, TCSANOW, &modes);
    }
    return master;
}

/* ## Reading */

void streams_ready(struct exec *e)
{
    if (e->ready || e->buried || e->state == FORKED || !(e->out_ready || e->err_ready))
        return; /* a command may write before its shepherd has said that it runs: STARTED comes first */
    e->ready = true;
    e->ready_next = NULL;
    *ready_end = e;
    ready_end = &e->ready_next;
}

static bool dropping(const struct exec *e)
{
    return e->released || e->state == ENDED;
}

enum result { DRY, FINISHED, GOT, FULL };

static enum result read_away(struct source *s, size_t *got)
{
    size_t room;
    void *data = scratch_take(&room);
    if (!data)
        return FULL;
    ssize_t size = read(s->fd, data, room);
    scratch_give(data);
    if (size > 0)
        *got = (size_t)size;
    if (size > 0 || (size < 0 && errno == EINTR))
        return GOT;
    return size < 0 && errno == EAGAIN ? DRY : FINISHED;
}

static enum result read_log(struct exec *e, struct source *s, int64_t *drain, size_t *got)
{
    uint64_t kept = e->log.end - e->log.acked;
    if (kept >= e->window)
        return FULL;
    size_t room, most = e->window - kept;
    if (e->state == DRAINING && (uint64_t)*drain < most)
        most = (size_t)*drain;
    void *data = log_room(&e->log, &room);
    if (!data)
        return FULL;
    ssize_t size = read(s->fd, data, room < most ? room : most);
    if (size <= 0) {
        int error = errno;
        log_unused(&e->log);
        if (size < 0 && error == EINTR)
            return GOT;
        return size < 0 && error == EAGAIN ? DRY : FINISHED;
    }
    *got = (size_t)size;
    bool is_err = s->kind == SOURCE_STDERR;
    uint64_t *total = is_err ? &e->stderr_bytes : &e->stdout_bytes;
    if (*total < GROW_AT && *total + *got >= GROW_AT)
        fcntl(s->fd, F_SETPIPE_SZ, GROWN_PIPE);
    *total += *got;
    if (e->state == DRAINING)
        *drain -= size;
    log_add(&e->log, is_err ? 2 : 1, *got);
    return GOT;
}

/* Read one stream for at most what is left of the turn. */
static void pump_stream(struct exec *e, struct source *s, bool *is_ready, int64_t *drain, size_t *turn)
{
    while (*is_ready && *turn && s->fd >= 0) {
        size_t got = 0;
        enum result result;
        if (dropping(e))
            result = read_away(s, &got);
        else if (e->state == DRAINING && *drain == 0)
            return;
        else
            result = read_log(e, s, drain, &got);
        if (result == FULL)
            return;
        if (result == DRY || result == FINISHED) {
            *is_ready = false;
            *drain = 0;
        }
        /* A terminal that nobody has open may be opened again, and closing it would hang up on its processes. */
        if (result == FINISHED && !(e->flags & TERMINAL && e->state < DRAINING))
            source_close(s);
        *turn -= got < *turn ? got : *turn;
    }
    if (s->fd < 0)
        *drain = 0;
}

static void pump(struct exec *e)
{
    size_t turn = TURN;
    if (e->flags & BUILTIN) /* its stderr tells what is on its stdout, and the window may be full of that */
        pump_stream(e, &e->err, &e->err_ready, &e->drain_err, &turn);
    pump_stream(e, &e->out, &e->out_ready, &e->drain_out, &turn);
    pump_stream(e, &e->err, &e->err_ready, &e->drain_err, &turn);
    if (e->log.sent < e->log.end)
        say(e);
    if (e->state == DRAINING && !e->drain_out && !e->drain_err)
        exec_drained(e);
}

static bool can_go_on(const struct exec *e)
{
    if (!(e->out_ready && e->out.fd >= 0) && !(e->err_ready && e->err.fd >= 0))
        return false;
    return dropping(e) || e->log.end - e->log.acked < e->window;
}

bool streams_pump(void)
{
    struct exec *e = ready;
    ready = NULL;
    ready_end = &ready;
    while (e) {
        struct exec *next = e->ready_next;
        e->ready = false;
        if (!e->buried) {
            pump(e);
            if (can_go_on(e))
                streams_ready(e);
        }
        e = next;
    }
    return ready != NULL;
}

/* ## The end of a command */

static int64_t waiting_in(const struct exec *e, const struct source *s)
{
    int amount = 0;
    if (s->fd < 0)
        return 0;
    if (e->flags & TERMINAL)
        return TERMINAL_REST;
    return ioctl(s->fd, FIONREAD, &amount) ? 0 : amount;
}

/* Exactly what is there now is still the command's; what others write into the same pipe later is not. */
void streams_drain(struct exec *e)
{
    e->drain_out = waiting_in(e, &e->out);
    e->drain_err = waiting_in(e, &e->err);
    e->out_ready = e->out.fd >= 0;
    e->err_ready = e->err.fd >= 0;
    if (e->released || (!e->drain_out && !e->drain_err))
        exec_drained(e);
    streams_ready(e);
}

void streams_close(struct exec *e)
{
    source_close(&e->in);
    source_close(&e->out);
    source_close(&e->err);
    e->out_ready = e->err_ready = false;
}
