/* What the guest says: state that is due becomes frames, when and only when the link has room. */
#include "bytes.h"
#include "guest.h"

enum { FILL = 32768, COPY = 8192, CREDIT_STEP = 65536 };

/* ## The ring of execs that have something to say, served in turn */

void say(struct exec *e)
{
    if (e->queued || !e->resumed || e->released || host.state != LINK_OPEN)
        return;
    e->queued = true;
    if (!host.queue) {
        host.queue = e->queue_next = e->queue_previous = e;
        return;
    }
    e->queue_next = host.queue;
    e->queue_previous = host.queue->queue_previous;
    e->queue_previous->queue_next = e;
    host.queue->queue_previous = e;
}

void unsay(struct exec *e)
{
    if (!e->queued)
        return;
    e->queued = false;
    if (e->queue_next == e) {
        host.queue = NULL;
        return;
    }
    e->queue_next->queue_previous = e->queue_previous;
    e->queue_previous->queue_next = e->queue_next;
    if (host.queue == e)
        host.queue = e->queue_next;
}

/* ## Frames */

static void say_started(struct exec *e)
{
    unsigned char *p = link_frame(e->channel, STARTED, 12);
    put32(p, (uint32_t)e->command);
    put64(p + 4, e->started_at);
    e->started_due = false;
}

static void say_credit(struct exec *e)
{
    put32(link_frame(e->channel, CREDIT, 4), e->credit_due);
    e->credit += (int32_t)e->credit_due;
    e->credit_due = 0;
    e->credit_anew = false;
}

static void say_exit(struct exec *e)
{
    unsigned char *p = link_frame(e->channel, EXIT, 72);
    p[0] = e->outcome;
    p[1] = e->stage;
    put16(p + 2, 0);
    put32(p + 4, (uint32_t)e->code);
    put64(p + 8, e->log.end);
    put64(p + 16, e->stdout_bytes);
    put64(p + 24, e->stderr_bytes);
    put64(p + 32, e->started_at);
    put64(p + 40, e->finished_at);
    put64(p + 48, e->user_us);
    put64(p + 56, e->system_us);
    put64(p + 64, e->max_rss);
    e->exit_due = false;
}

static void say_output(struct exec *e)
{
    int stream;
    const void *data;
    size_t size = log_peek(&e->log, &stream, &data);
    if (size > MAX_PAYLOAD - OUTPUT_HEAD)
        size = MAX_PAYLOAD - OUTPUT_HEAD;
    unsigned char *p;
    if (size <= COPY) {
        p = link_frame(e->channel, OUTPUT, OUTPUT_HEAD + size);
        memcpy(p + OUTPUT_HEAD, data, size);
        e->log.delivered += size;
    } else {
        unsigned char *h = host.flight_head;
        put32(h, (uint32_t)(OUTPUT_HEAD + size));
        put32(h + 4, e->channel);
        h[8] = OUTPUT;
        h[9] = h[10] = h[11] = 0;
        p = h + HEADER;
        host.flight = data;
        host.flight_size = sizeof host.flight_head + size;
        host.flight_done = 0;
        host.flight_exec = e;
    }
    put64(p, e->log.sent);
    p[8] = (unsigned char)stream;
    log_sent(&e->log, size);
}

static void say_inventory(struct exec *e)
{
    unsigned char *p = link_frame(e->channel, INVENTORY, 44 + e->metadata_size);
    p[0] = e->state == ENDED ? 2 : 1;
    p[1] = e->in.fd >= 0 && !e->stdin_eof;
    put16(p + 2, 0);
    put32(p + 4, (uint32_t)e->command);
    put64(p + 8, e->log.acked);
    put64(p + 16, e->log.end);
    put64(p + 24, e->stdin_received);
    put64(p + 32, e->started_at);
    put32(p + 40, e->metadata_size);
    if (e->metadata_size)
        memcpy(p + 44, e->metadata, e->metadata_size);
    if (e->started)
        e->started_due = false; /* this said it */
}

static bool waiting(void)
{
    return host.flight || host.out_size - host.out_at >= FILL;
}

static void fill_inventory(void)
{
    while (host.inventory && !waiting()) {
        struct exec *e = host.inventory;
        host.inventory = e->next;
        if (!e->resumed && !e->released && !e->buried)
            say_inventory(e);
    }
    if (!host.inventory && !waiting()) {
        link_frame(0, INVENTORY_END, 0);
        host.inventory_due = false;
    }
}

/* STARTED, CREDIT, then output, then EXIT: what one exec says comes in this order. */
void link_fill(void)
{
    if (host.inventory_due)
        fill_inventory();
    while (host.queue && !waiting()) {
        struct exec *e = host.queue;
        if (e->started_due)
            say_started(e);
        if (e->credit_due >= CREDIT_STEP || e->credit_anew)
            say_credit(e);
        if (e->log.sent < e->log.end)
            say_output(e);
        if (e->log.sent == e->log.end && !host.flight) {
            if (e->exit_due)
                say_exit(e);
            unsay(e);
        } else {
            host.queue = e->queue_next;
        }
    }
}
