/* Stdin: written to the process as it takes it. What it does not take at once is held, up to the host's credit. */
#include "guest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <termios.h>
#include <unistd.h>

enum { CREDIT_STEP = 65536 };

static void consumed(struct exec *e, size_t size)
{
    e->credit_due += (uint32_t)size;
    if (e->credit_due >= CREDIT_STEP)
        say(e);
}

/* Nobody reads any more: the rest counts as taken. */
static void broken(struct exec *e)
{
    consumed(e, e->held_size - e->held_at);
    free(e->held);
    e->held = NULL;
    e->held_size = e->held_at = 0;
    source_close(&e->in);
}

static ssize_t give(struct exec *e, const unsigned char *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = write(e->in.fd, data + done, size - done);
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return -1;
        if (!e->in_watched)
            e->in_watched = watch_fd(&e->in, EPOLLOUT | EPOLLET);
        break;
    }
    if (done)
        e->line_open = data[done - 1] != '\n';
    return (ssize_t)done;
}

/* A terminal has no end of input but its end-of-file character, which ends a line first if one is open. */
static void end_of_input(struct exec *e)
{
    if (e->flags & TERMINAL) {
        struct termios modes;
        unsigned char end = 4;
        if (!tcgetattr(e->in.fd, &modes) && modes.c_lflag & ICANON && modes.c_cc[VEOF])
            end = modes.c_cc[VEOF];
        unsigned char bytes[2] = {end, end};
        if (write(e->in.fd, bytes, e->line_open ? 2 : 1) < 0 && errno == EAGAIN) {
            if (!e->in_watched)
                e->in_watched = watch_fd(&e->in, EPOLLOUT | EPOLLET);
            return;
        }
    }
    source_close(&e->in);
}

void input_write(struct exec *e)
{
    if (e->in.fd < 0)
        return;
    size_t size = e->held_size - e->held_at;
    if (size) {
        ssize_t done = give(e, e->held + e->held_at, size);
        if (done < 0) {
            broken(e);
            return;
        }
        e->held_at += (uint32_t)done;
        consumed(e, (size_t)done);
        if (e->held_at < e->held_size)
            return;
        free(e->held);
        e->held = NULL;
        e->held_size = e->held_at = 0;
    }
    if (e->stdin_eof)
        end_of_input(e);
}

static bool hold(struct exec *e, const unsigned char *data, size_t size)
{
    if (!size)
        return true;
    size_t have = e->held_size - e->held_at;
    unsigned char *all = malloc(have + size);
    if (!all)
        return false;
    if (have)
        memcpy(all, e->held + e->held_at, have);
    memcpy(all + have, data, size);
    free(e->held);
    e->held = all;
    e->held_size = (uint32_t)(have + size);
    e->held_at = 0;
    return true;
}

bool input_data(struct exec *e, const unsigned char *data, size_t size, bool last)
{
    if ((int64_t)size > e->credit)
        return link_violation("STDIN beyond its credit");
    e->credit -= (int32_t)size;
    e->stdin_received += size;
    if (e->in.fd < 0 || e->stdin_eof) {
        consumed(e, size);
        return true;
    }
    e->stdin_eof = last;
    if (e->held_at == e->held_size && size) {
        ssize_t done = give(e, data, size);
        if (done < 0) {
            consumed(e, size);
            broken(e);
            return true;
        }
        consumed(e, (size_t)done);
        data += done;
        size -= (size_t)done;
    }
    if (!hold(e, data, size)) {
        consumed(e, size);
        broken(e);
        return true;
    }
    if (last && e->held_at == e->held_size)
        end_of_input(e);
    return true;
}
