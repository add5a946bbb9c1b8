/* The link to the host: frames out of and into one byte stream, never waiting for it.
 *
 * Out: small frames are gathered in `out`; a big OUTPUT is not copied but written from the log as `flight`, after
 * everything in `out`. Frames are made (says.c) only when the stream takes them, so nothing queues without bound. */
#include "bytes.h"
#include "guest.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    IN_SMALL = 4096,
    IN_BIG = HEADER + MAX_PAYLOAD,
    OUT_SMALL = 4096,
    OUT_LIMIT = 65536, /* answers waiting beyond this stop us from taking further requests */
    ROUND = 1 << 20,
    IDLE_MS = 1000,
};

struct link host = {.source = {.kind = SOURCE_LINK, .fd = -1}};
static struct timer shrink_timer;

void link_open(int fd, enum link_state state)
{
    host.source.fd = fd;
    host.state = state;
    host.readable = host.writable = true;
    host.hung_up = host.broken = false;
    host.serial++;
    host.in_size = host.in_at = host.out_size = host.out_at = 0;
    if (!watch_fd(&host.source, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET))
        link_close();
}

void link_close(void)
{
    if (host.state == LINK_NONE)
        return;
    source_close(&host.source);
    host.state = LINK_NONE;
    host.readable = host.writable = false;
    host.inventory = NULL;
    host.inventory_due = false;
    host.flight = NULL;
    host.flight_exec = NULL;
    host.flight_size = host.flight_done = 0;
    host.in_size = host.in_at = host.out_size = host.out_at = 0;
    execs_link_lost();
    if (shutting_down)
        return;
    if (host.adopted && dial_possible())
        dial_soon();
    else
        shutdown_begin(0, 1);
}

bool link_violation(const char *why)
{
    size_t size = strlen(why);
    if (!host.flight) {
        memcpy(link_frame(0, PROBLEM, size), why, size);
        if (send(host.source.fd, host.out + host.out_at, host.out_size - host.out_at, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            errno = 0; /* it was a courtesy */
    }
    link_close();
    return false;
}

/* ## Out */

/* Buffers grow with what they carry, and shrink again when nothing has come for a while. */
static void shrink(struct timer *t)
{
    (void)t;
    if (host.in_room > IN_SMALL && host.in_size == 0) {
        free(host.in);
        host.in = NULL;
        host.in_room = 0;
    }
    if (host.out_room > OUT_SMALL && host.out_size == 0) {
        free(host.out);
        host.out = NULL;
        host.out_room = 0;
    }
    if (host.in_room > IN_SMALL || host.out_room > OUT_SMALL)
        timer_set(&shrink_timer, IDLE_MS, shrink);
}

static bool grow(unsigned char **buffer, size_t *room, size_t used, size_t wanted)
{
    if (wanted <= *room)
        return true;
    size_t more = *room ? *room : OUT_SMALL;
    while (more < wanted)
        more *= 2;
    unsigned char *grown = malloc(more);
    if (!grown)
        return false;
    if (used)
        memcpy(grown, *buffer, used);
    free(*buffer);
    *buffer = grown;
    *room = more;
    if (more > OUT_SMALL && !shrink_timer.slot)
        timer_set(&shrink_timer, IDLE_MS, shrink);
    return true;
}

/* Space for a frame's payload at the end of `out`. */
unsigned char *link_frame(uint32_t channel, uint8_t type, size_t size)
{
    if (host.out_at && host.out_size + HEADER + size > host.out_room) {
        memmove(host.out, host.out + host.out_at, host.out_size - host.out_at);
        host.out_size -= host.out_at;
        host.out_at = 0;
    }
    if (!grow(&host.out, &host.out_room, host.out_size, host.out_size + HEADER + size))
        abort(); /* bounded by OUT_LIMIT and one frame: without that much memory there is no guest */
    unsigned char *at = host.out + host.out_size;
    put32(at, (uint32_t)size);
    put32(at + 4, channel);
    at[8] = type;
    at[9] = at[10] = at[11] = 0;
    host.out_size += HEADER + size;
    return at + HEADER;
}

static void flight_landed(void)
{
    struct exec *e = host.flight_exec;
    if (e)
        e->log.delivered += host.flight_size - HEADER - OUTPUT_HEAD;
    host.flight = NULL;
    host.flight_exec = NULL;
    host.flight_size = host.flight_done = 0;
}

/* A flight that has begun goes on before anything else; one that has not waits for `out`. */
static size_t take_flight(size_t size)
{
    if (!host.flight)
        return 0;
    size_t left = host.flight_size - host.flight_done;
    size_t taken = size < left ? size : left;
    host.flight_done += taken;
    if (host.flight_done == host.flight_size)
        flight_landed();
    return taken;
}

static size_t take_out(size_t size)
{
    size_t left = host.out_size - host.out_at;
    size_t taken = size < left ? size : left;
    host.out_at += taken;
    if (host.out_at == host.out_size)
        host.out_at = host.out_size = 0;
    return taken;
}

static int flight_parts(struct iovec *parts)
{
    const size_t head = sizeof host.flight_head;
    size_t done = host.flight_done;
    int count = 0;
    if (!host.flight)
        return 0;
    if (done < head) {
        parts[count++] = (struct iovec){host.flight_head + done, head - done};
        done = head;
    }
    parts[count++] = (struct iovec){(void *)(host.flight + (done - head)), host.flight_size - done};
    return count;
}

static bool write_some(void)
{
    struct iovec parts[3];
    bool flight_first = host.flight_done > 0;
    int count = flight_first ? flight_parts(parts) : 0;
    if (host.out_size > host.out_at)
        parts[count++] = (struct iovec){host.out + host.out_at, host.out_size - host.out_at};
    if (!flight_first)
        count += flight_parts(parts + count);
    ssize_t written = writev(host.source.fd, parts, count);
    if (written < 0) {
        if (errno == EINTR)
            return true;
        host.writable = false;
        if (errno != EAGAIN && errno != ENOBUFS) /* the host is gone; what it said before is still to be read */
            host.broken = host.hung_up = host.readable = true;
        return false;
    }
    size_t size = (size_t)written;
    if (flight_first)
        size -= take_flight(size);
    size -= take_out(size);
    if (!flight_first)
        take_flight(size);
    return true;
}

void link_flush(void)
{
    size_t budget = ROUND / 65536;
    while (host.state != LINK_NONE && host.writable && budget--) {
        link_fill();
        if (host.out_size == host.out_at && !host.flight)
            return;
        if (!write_some())
            return;
    }
}

/* Before the log of `e` goes away: what is in flight from it must be finished on this link, so it is copied. */
void link_detach(struct exec *e)
{
    if (host.inventory == e)
        host.inventory = e->next;
    if (host.flight_exec != e)
        return;
    struct iovec parts[2];
    size_t left = host.flight_size - host.flight_done;
    bool begun = host.flight_done > 0;
    int count = flight_parts(parts);
    unsigned char *at = link_frame(0, 0, left) - HEADER;
    host.out_size -= HEADER;
    if (begun) {
        unsigned char *first = host.out + host.out_at;
        memmove(first + left, first, (size_t)(at - first));
        at = first;
    }
    for (int i = 0; i < count; i++) {
        memcpy(at, parts[i].iov_base, parts[i].iov_len);
        at += parts[i].iov_len;
    }
    host.flight_exec = NULL;
    host.flight = NULL;
    host.flight_size = host.flight_done = 0;
}

/* ## In */

static bool frame_waits(void)
{
    size_t have = host.in_size - host.in_at;
    return have >= HEADER && have - HEADER >= get32(host.in + host.in_at);
}

/* True: a whole frame was there and has been dealt with. */
static bool take_frame(void)
{
    size_t have = host.in_size - host.in_at;
    if (have < HEADER)
        return false;
    unsigned char *at = host.in + host.in_at;
    struct frame f = {get32(at + 4), at[8], at[9], at + HEADER, get32(at)};
    if (f.size > MAX_PAYLOAD)
        return link_violation("a frame is too long");
    if (get16(at + 10))
        return link_violation("a reserved field is not zero");
    if (have - HEADER < f.size)
        return false;
    host.in_at += HEADER + f.size;
    if (!request(&f))
        return false;
    if (host.in_at == host.in_size)
        host.in_at = host.in_size = 0;
    return true;
}

static bool make_room(void)
{
    if (host.in_at) {
        memmove(host.in, host.in + host.in_at, host.in_size - host.in_at);
        host.in_size -= host.in_at;
        host.in_at = 0;
    }
    size_t wanted = IN_SMALL;
    if (host.in_size >= HEADER && HEADER + get32(host.in) > IN_SMALL)
        wanted = IN_BIG;
    return grow(&host.in, &host.in_room, host.in_size, wanted);
}

static bool stalled(void)
{
    return !host.broken && host.out_size - host.out_at > OUT_LIMIT;
}

bool link_read(void)
{
    size_t budget = ROUND;
    for (;;) {
        while (!stalled() && take_frame())
            ;
        if (host.state == LINK_NONE || stalled() || !host.readable)
            return false;
        if (!budget)
            return true;
        if (!make_room())
            return true;
        size_t room = host.in_room - host.in_size;
        ssize_t size = read(host.source.fd, host.in + host.in_size, room);
        if (size > 0) {
            host.in_size += (size_t)size;
            budget -= (size_t)size < budget ? (size_t)size : budget;
            if ((size_t)size < room && !host.hung_up)
                host.readable = false; /* what comes later makes a new edge */
        } else if (size < 0 && errno == EAGAIN) {
            host.readable = false;
        } else if (size == 0 || errno != EINTR) {
            link_close();
            return false;
        }
    }
}

bool link_more(void)
{
    if (host.state == LINK_NONE)
        return false;
    if (host.writable && (host.queue || host.inventory_due || host.flight || host.out_size > host.out_at))
        return true;
    return !stalled() && (host.readable || frame_waits());
}
