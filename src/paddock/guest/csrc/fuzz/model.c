/* A correct host that loses its link at any moment. Each exec's output has to arrive in order, once, up to the end that
 * EXIT names, however frames were cut. */
#include "fuzz.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHANNELS = 12 };

static struct { uint64_t position, acked; bool used, ended, done; } known[CHANNELS + 1];
static unsigned char inbox[1 << 20];
static size_t inbox_size;
static int fd;
static bool listed;

static void tell(uint32_t channel, uint8_t type, const void *payload, size_t size)
{
    unsigned char frame[512];
    put32(frame, (uint32_t)size);
    put32(frame + 4, channel);
    frame[8] = type;
    frame[9] = frame[10] = frame[11] = 0;
    if (size)
        memcpy(frame + HEADER, payload, size);
    CHECK(send(fd, frame, HEADER + size, MSG_NOSIGNAL) == (ssize_t)(HEADER + size));
    stage_step();
}

static void take_output(uint32_t channel, const unsigned char *p, uint32_t size)
{
    CHECK(size > OUTPUT_HEAD && !known[channel].ended);
    CHECK(get64(p) == known[channel].position);
    for (uint32_t i = OUTPUT_HEAD; i < size; i++, known[channel].position++)
        CHECK(p[i] == stage_byte(channel, known[channel].position));
}

static void take_inventory(uint32_t channel, const unsigned char *p)
{
    unsigned char at[8];
    CHECK(known[channel].used && !known[channel].done);
    CHECK(get64(p + 8) == known[channel].acked || get64(p + 8) <= known[channel].position);
    put64(at, known[channel].position);
    known[channel].acked = known[channel].position;
    known[channel].ended = false;
    tell(channel, RESUME, at, 8);
}

static void take(uint32_t channel, uint8_t type, const unsigned char *p, uint32_t size)
{
    CHECK(channel <= CHANNELS && type != PROBLEM);
    if (type == OUTPUT)
        take_output(channel, p, size);
    else if (type == INVENTORY)
        take_inventory(channel, p);
    else if (type == INVENTORY_END)
        listed = true;
    else if (type == EXIT) {
        CHECK(size == 72 && get64(p + 8) == known[channel].position && !known[channel].ended);
        CHECK(get64(p + 16) + get64(p + 24) == get64(p + 8));
        known[channel].ended = true;
    }
}

static bool receive(size_t most)
{
    size_t room = sizeof inbox - inbox_size;
    ssize_t n = recv(fd, inbox + inbox_size, most < room ? most : room, MSG_DONTWAIT);
    if (n <= 0)
        return false;
    inbox_size += (size_t)n;
    size_t at = 0;
    while (inbox_size - at >= HEADER && inbox_size - at - HEADER >= get32(inbox + at)) {
        const unsigned char *f = inbox + at;
        uint32_t size = get32(f);
        CHECK(size <= MAX_PAYLOAD && !f[9] && !f[10] && !f[11]);
        at += HEADER + size;
        take(get32(f + 4), f[8], f + HEADER, size);
    }
    memmove(inbox, inbox + at, inbox_size - at);
    inbox_size -= at;
    return true;
}

static void acknowledge(uint32_t channel)
{
    unsigned char at[8];
    if (known[channel].acked == known[channel].position)
        return;
    known[channel].acked += 1 + below((uint32_t)(known[channel].position - known[channel].acked));
    put64(at, known[channel].acked);
    tell(channel, ACK, at, 8);
}

static void act(void)
{
    unsigned char payload[512];
    uint32_t channel = 1 + below(CHANNELS);
    struct exec *e = exec_find(channel);
    if (!known[channel].used) {
        size_t size = stage_start(payload, 0, 4096 + below(400000));
        known[channel].used = true;
        tell(channel, START, payload, size);
    } else if (e && below(2)) {
        stage_write(e, 1 + (int)below(2), below(3) ? below(300) : below(300000));
    } else if (e && below(6) == 0 && !known[channel].ended) {
        stage_end(e);
    } else if (known[channel].ended && !known[channel].done && below(4) == 0) {
        known[channel].done = true;
        tell(channel, RELEASE, NULL, 0);
    } else if (!known[channel].done) {
        acknowledge(channel);
    }
}

static void connect_again(enum link_state how)
{
    unsigned char payload[64] = {0};
    inbox_size = 0;
    listed = how == LINK_FIRST;
    fd = stage_open(how);
    put16(payload, VERSION);
    if (how == LINK_FIRST) {
        put32(payload + 36, 4);
        memcpy(payload + 40, "/tmp", 4);
        tell(0, BOOT, payload, 44);
        tell(0, ADOPT, NULL, 0);
    } else {
        tell(0, WELCOME, payload, 2);
    }
    for (stage_step(); !listed; stage_step())
        receive(sizeof inbox);
}

/* With every process ended and everything read, nothing may be missing. */
static void finish(void)
{
    for (bool moving = true; moving;) {
        moving = false;
        for (struct exec *e = execs; e; e = e->next) {
            if (e->state != ENDED)
                stage_end(e);
            moving |= e->state != ENDED;
        }
        stage_step();
        while (receive(sizeof inbox))
            moving = true;
    }
    for (struct exec *e = execs; e; e = e->next)
        if (!e->released)
            CHECK(known[e->channel].ended && known[e->channel].position == e->log.end);
}

void fuzz_model(void)
{
    memset(known, 0, sizeof known);
    connect_again(LINK_FIRST);
    for (uint32_t links = below(4);; links--) {
        for (uint32_t n = below(300); n; n--) {
            act();
            stage_step();
            if (below(3))
                receive(1 + below(100000));
            CHECK(host.state == LINK_OPEN);
        }
        if (!links)
            break;
        link_close();
        close(fd);
        connect_again(LINK_DIALLED);
    }
    finish();
    close(fd);
    stage_clear();
}
