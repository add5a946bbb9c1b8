/* The output log of an exec: what it wrote and the host has not acknowledged, in blocks of records.
 *
 * A record is a run of bytes of one stream. Its head is one byte (top bit: stream 2; the rest: a length below 127), or
 * that byte with 127 and three bytes of length. So the worst a process can do by alternating between its streams is to
 * double the memory its window costs. Data is read from the process straight into a block and written to the link
 * straight out of it. */
#include "bytes.h"
#include "guest.h"

#include <stdlib.h>
#include <sys/mman.h>

enum {
    SMALL_BLOCK = 4096 - 32,
    BIG_BLOCK = 262144,
    LONG_HEAD = 4,
    SHORT_LIMIT = 127,
    WORTH_READING = 1024,
    CACHED = 8,
    IDLE_MS = 1000,
};

struct block {
    struct block *next;
    uint32_t room, used;
    uint32_t bytes; /* of data, without the heads */
    unsigned char data[];
};

static struct block *cache;
static unsigned cached;
static struct timer trim_timer;

/* Big blocks are not for children: a shepherd would hold on to pages that the guest has long given back. */
static struct block *big_block(void)
{
    struct block *b = cache;
    if (b) {
        cache = b->next;
        cached--;
    } else {
        b = mmap(NULL, BIG_BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (b == MAP_FAILED)
            return NULL;
        madvise(b, BIG_BLOCK, MADV_DONTFORK);
    }
    b->room = BIG_BLOCK - sizeof *b;
    return b;
}

static void trim_fire(struct timer *t)
{
    (void)t;
    log_trim();
}

static void block_free(struct block *b)
{
    if (b->room <= SMALL_BLOCK) {
        free(b);
    } else if (cached < CACHED) {
        b->next = cache;
        cache = b;
        cached++;
        if (!trim_timer.slot)
            timer_set(&trim_timer, IDLE_MS, trim_fire);
    } else {
        munmap(b, BIG_BLOCK);
    }
}

void log_trim(void)
{
    while (cache) {
        struct block *b = cache;
        cache = b->next;
        munmap(b, BIG_BLOCK);
    }
    cached = 0;
}

void *scratch_take(size_t *size)
{
    struct block *b = big_block();
    if (!b)
        return NULL;
    *size = b->room;
    return b->data;
}

void scratch_give(void *data)
{
    block_free(OWNER(data, struct block, data));
}

static bool add_block(struct log *log)
{
    struct block *b;
    if (log->tail) {
        b = big_block();
    } else {
        b = malloc(sizeof *b + SMALL_BLOCK);
        if (b)
            b->room = SMALL_BLOCK;
    }
    if (!b)
        return false;
    b->next = NULL;
    b->used = b->bytes = 0;
    if (log->tail)
        log->tail->next = b;
    else {
        log->head = b;
        log->head_at = log->end;
    }
    log->tail = b;
    return true;
}

void *log_room(struct log *log, size_t *room)
{
    struct block *b = log->tail;
    if (!b || b->room - b->used < WORTH_READING) {
        if (!add_block(log))
            return NULL;
        b = log->tail;
    }
    *room = b->room - b->used - LONG_HEAD;
    return b->data + b->used + LONG_HEAD;
}

/* ## Records */

struct record { int stream; uint32_t head, size; };

static struct record record_at(const struct block *b, uint32_t at)
{
    const unsigned char *p = b->data + at;
    struct record r = {p[0] & 0x80 ? 2 : 1, 1, p[0] & 0x7f};
    if (r.size == SHORT_LIMIT) {
        r.head = LONG_HEAD;
        r.size = get32(p) >> 8;
    }
    return r;
}

static void record_put(struct block *b, uint32_t at, struct record r)
{
    unsigned char top = r.stream == 2 ? 0x80 : 0;
    if (r.head == 1)
        b->data[at] = top | (unsigned char)r.size;
    else
        put32(b->data + at, r.size << 8 | top | SHORT_LIMIT);
}

static void cursor_settle(struct log *log)
{
    while (log->cursor) {
        struct block *b = log->cursor;
        if (log->cursor_at < b->used) {
            struct record r = record_at(b, log->cursor_at);
            if (log->cursor_in < r.size || (!b->next && log->cursor_at + r.head + r.size == b->used))
                return; /* the last record may still grow */
            log->cursor_at += r.head + r.size;
            log->cursor_in = 0;
        } else if (b->next) {
            log->cursor = b->next;
            log->cursor_at = log->cursor_in = 0;
        } else {
            return;
        }
    }
}

/* The data lies LONG_HEAD after `used`, where log_room said. */
void log_add(struct log *log, int stream, size_t size)
{
    struct block *b = log->tail;
    unsigned char *data = b->data + b->used + LONG_HEAD;
    struct record last = {0, 0, 0};
    if (b->used)
        last = record_at(b, log->last);
    bool same = last.stream == stream;
    if (same && (last.head == LONG_HEAD || last.size + size < SHORT_LIMIT)) {
        memmove(b->data + b->used, data, size);
        last.size += (uint32_t)size;
        record_put(b, log->last, last);
        b->used += (uint32_t)size;
    } else {
        struct record r = {stream, size < SHORT_LIMIT ? 1 : LONG_HEAD, (uint32_t)size};
        log->last = b->used;
        if (r.head == 1)
            memmove(b->data + b->used + 1, data, size);
        record_put(b, log->last, r);
        b->used += r.head + r.size;
    }
    b->bytes += (uint32_t)size;
    log->end += size;
    if (!log->cursor) {
        log->cursor = b;
        log->cursor_at = log->last;
        log->cursor_in = 0;
    }
    cursor_settle(log);
}

size_t log_peek(const struct log *log, int *stream, const void **data)
{
    if (log->sent == log->end)
        return 0;
    struct record r = record_at(log->cursor, log->cursor_at);
    *stream = r.stream;
    *data = log->cursor->data + log->cursor_at + r.head + log->cursor_in;
    return r.size - log->cursor_in;
}

void log_sent(struct log *log, size_t size)
{
    log->sent += size;
    log->cursor_in += (uint32_t)size;
    if (log->sent < log->end)
        cursor_settle(log);
}

static void drop_head(struct log *log)
{
    struct block *b = log->head;
    log->head_at += b->bytes;
    log->head = b->next;
    if (log->cursor == b) {
        log->cursor = log->head;
        log->cursor_at = log->cursor_in = 0;
    }
    if (!log->head)
        log->tail = NULL;
    block_free(b);
}

void log_ack(struct log *log, uint64_t position)
{
    if (position <= log->acked)
        return;
    log->acked = position;
    while (log->head && log->head_at + log->head->bytes <= position)
        drop_head(log);
}

void log_seek(struct log *log, uint64_t position)
{
    log->sent = log->head_at;
    log->cursor = log->head;
    log->cursor_at = log->cursor_in = 0;
    if (!log->head) {
        log->sent = position; /* all of it is acknowledged */
        return;
    }
    while (log->sent < position) {
        int stream;
        const void *data;
        size_t size = log_peek(log, &stream, &data);
        log_sent(log, size < position - log->sent ? size : (size_t)(position - log->sent));
    }
}

/* Room that was asked for and not needed. */
void log_unused(struct log *log)
{
    if (log->head && log->acked == log->end)
        log_free(log);
}

void log_free(struct log *log)
{
    while (log->head)
        drop_head(log);
}
