/* What each frame of the host does. Every function returns false when the link had to be closed. */
#include "bytes.h"
#include "guest.h"

#include <sys/ioctl.h>

static bool boot(const struct frame *f)
{
    enum { FIXED = 4 + SECRET_SIZE + 4, MAX_FOLDER = 90 };
    const unsigned char *p = f->payload;
    if (f->type != BOOT || f->channel || f->size < FIXED)
        return link_violation("the first frame has to be BOOT");
    if (get16(p) != VERSION || get16(p + 2))
        return link_violation("this guest speaks version 1 only");
    uint32_t size = get32(p + FIXED - 4);
    if (size != f->size - FIXED || size > MAX_FOLDER || memchr(p + FIXED, 0, size))
        return link_violation("BOOT does not parse");
    dial_set(p + 4, (const char *)p + FIXED, size);
    memset(f->payload, 0, f->size);
    host.state = LINK_OPEN;
    unsigned char *out = link_frame(0, HELLO, 4 + BOOT_ID_SIZE);
    put16(out, VERSION);
    put16(out + 2, 0);
    memcpy(out + 4, boot_id, BOOT_ID_SIZE);
    return true;
}

static bool welcome(const struct frame *f)
{
    if (f->type != WELCOME || f->channel || f->size != 2 || get16(f->payload) != VERSION)
        return link_violation("the first frame has to be WELCOME with version 1");
    dial_welcomed();
    return true;
}

static bool start(const struct frame *f)
{
    struct start parsed;
    if (!start_parse(&parsed, f->payload, f->size))
        return link_violation("START does not parse");
    if (!channel_take(f->channel)) {
        start_free(&parsed);
        return link_violation("START for a channel that was used before");
    }
    bool fine = exec_start(f->channel, &parsed);
    start_free(&parsed);
    return fine;
}

static bool ack(struct exec *e, const struct frame *f)
{
    uint64_t position = get64(f->payload);
    if (position > e->log.delivered)
        return link_violation("ACK of what was never sent");
    log_ack(&e->log, position);
    streams_ready(e);
    return true;
}

static bool resume(struct exec *e, const struct frame *f)
{
    uint64_t position = get64(f->payload);
    if (e->resumed || position < e->log.acked || position > e->log.delivered)
        return link_violation("RESUME does not fit the exec");
    log_ack(&e->log, position);
    log_seek(&e->log, position);
    e->log.delivered = position;
    e->resumed = true;
    e->exit_due = e->state == ENDED;
    e->credit = 0;
    e->credit_due = 0;
    if (e->in.fd >= 0 && !e->stdin_eof) {
        e->credit_due = STDIN_CREDIT - (e->held_size - e->held_at);
        e->credit_anew = true;
    }
    say(e);
    streams_ready(e);
    return true;
}

static bool send_signal(struct exec *e, const struct frame *f)
{
    uint32_t number = get32(f->payload);
    if (f->payload[4] > 1)
        return link_violation("SIGNAL with an unknown scope");
    if (number >= 1 && number <= 64)
        exec_signal(e, (int)number, f->payload[4] == 1);
    return true;
}

static bool resize(struct exec *e, const struct frame *f)
{
    struct winsize size = {.ws_row = get16(f->payload), .ws_col = get16(f->payload + 2)};
    if (e->flags & TERMINAL && e->out.fd >= 0)
        ioctl(e->out.fd, TIOCSWINSZ, &size);
    return true;
}

/* The size a frame must have; -1 for any. */
static int expected_size(uint8_t type)
{
    switch (type) {
    case ADOPT: case RELEASE: return 0;
    case SIGNAL: return 5;
    case RESIZE: case SHUTDOWN: case KILL: return 4;
    case ACK: case RESUME: case PING: return 8;
    default: return -1;
    }
}

static bool link_request(const struct frame *f)
{
    switch (f->type) {
    case ADOPT:
        host.adopted = true;
        return true;
    case PING:
        memcpy(link_frame(0, PONG, 8), f->payload, 8);
        return true;
    case SHUTDOWN:
        shutdown_begin(get32(f->payload), 0);
        return true;
    default:
        return link_violation("a frame that does not belong here");
    }
}

static bool exec_request(const struct frame *f)
{
    struct exec *e = exec_find(f->channel);
    if (!e) {
        if (!channel_is_late(f->channel) || f->type == RESUME)
            return link_violation("a frame for a channel that does not exist");
        return true;
    }
    bool ended = e->state == DRAINING || e->state == ENDED;
    switch (f->type) {
    case STDIN:
        return ended || input_data(e, f->payload, f->size, f->flags & 1);
    case SIGNAL:
        return ended || send_signal(e, f);
    case RESIZE:
        return ended || resize(e, f);
    case ACK:
        return ack(e, f);
    case RESUME:
        return resume(e, f);
    case RELEASE:
        exec_release(e);
        return true;
    case KILL:
        if (!ended)
            exec_kill(e, get32(f->payload), KILLED);
        return true;
    default:
        return link_violation("a frame that does not belong here");
    }
}

bool request(const struct frame *f)
{
    if (f->type < BOOT || f->type > KILL)
        return link_violation("a frame of an unknown type");
    if (f->flags & ~(f->type == STDIN ? 1 : 0))
        return link_violation("a frame with unknown flags");
    if (host.state == LINK_FIRST)
        return boot(f);
    if (host.state == LINK_DIALLED)
        return welcome(f);
    int size = expected_size(f->type);
    if (size >= 0 && f->size != (uint32_t)size)
        return link_violation("a frame of the wrong size");
    if (!f->channel)
        return link_request(f);
    if (f->type == START)
        return start(f);
    return exec_request(f);
}
