/* Bytes on the link: frames of every kind, whole, damaged, cut, or noise. Whatever they are, the guest must neither
 * crash nor keep what it should have let go. */
#include "fuzz.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static unsigned char frame[HEADER + MAX_PAYLOAD + 64];

static size_t payload_for(uint8_t type, unsigned char *p)
{
    size_t size;
    switch (type) {
    case BOOT:
        memset(p, 0, 40);
        put16(p, VERSION);
        put32(p + 36, 4);
        memcpy(p + 40, "/tmp", 4);
        return 44;
    case WELCOME:
        put16(p, VERSION);
        return 2;
    case ADOPT: case RELEASE:
        return 0;
    case START:
        return stage_start(p, below(16), below(30) ? 4096 + below(100000) : (uint32_t)odd_number());
    case STDIN:
        size = below(10) ? below(200) : below(MAX_PAYLOAD);
        memset(p, 'i', size);
        return size;
    case SIGNAL:
        put32(p, (uint32_t)below(70));
        p[4] = below(30) ? (unsigned char)below(2) : 2;
        return 5;
    case RESIZE: case SHUTDOWN: case KILL:
        put32(p, (uint32_t)odd_number());
        return 4;
    case ACK: case RESUME:
        put64(p, below(20) ? 0 : odd_number());
        return 8;
    default:
        put64(p, odd_number());
        return 8;
    }
}

/* Mostly what a living link could see; a violation ends it, and with it the round. */
static uint8_t any_type(void)
{
    static const uint8_t usual[] = {START, START, STDIN, STDIN, STDIN, SIGNAL, RESIZE, ACK, ACK, RELEASE, PING, KILL};
    return below(60) ? usual[below(sizeof usual)] : (uint8_t)below(16);
}

static uint32_t any_channel(void)
{
    struct exec *e = stage_pick();
    if (e && below(20))
        return e->channel;
    return below(20) ? below(marks.top + 1) : (uint32_t)odd_number();
}

static size_t make_frame(uint8_t type)
{
    size_t size = payload_for(type, frame + HEADER);
    bool of_link = type <= ADOPT || type == PING || type == SHUTDOWN;
    if (below(200) == 0)
        size += below(3);
    put32(frame, (uint32_t)size);
    frame[10] = frame[11] = 0;
    put32(frame + 4, of_link ? 0 : type == START && below(10) ? marks.top + 1 + below(3) : any_channel());
    frame[8] = type;
    frame[9] = type == STDIN ? (unsigned char)below(2) : 0;
    if (below(100) == 0)
        damage(frame, HEADER + size);
    return HEADER + size;
}

static void throw_away(int fd)
{
    static char away[65536];
    while (recv(fd, away, sizeof away, MSG_DONTWAIT) > 0)
        ;
}

static void push(int fd, const unsigned char *data, size_t size)
{
    while (size && host.state != LINK_NONE) {
        ssize_t n = send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        }
        stage_step();
        throw_away(fd);
    }
}

static void play(void)
{
    struct exec *e = stage_pick();
    if (!e)
        return;
    if (below(3))
        stage_write(e, 1 + (int)below(2), below(5) ? below(100) : below(200000));
    else
        stage_end(e);
}

static void one_link(enum link_state how)
{
    int fd = stage_open(how);
    push(fd, frame, make_frame(how == LINK_FIRST ? BOOT : WELCOME));
    if (below(8))
        push(fd, frame, make_frame(ADOPT));
    for (struct exec *e = execs, *next; how == LINK_DIALLED && e && host.state == LINK_OPEN; e = next) {
        next = e->next;
        unsigned char resume[HEADER + 8] = {8, 0, 0, 0, 0, 0, 0, 0, RESUME};
        put32(resume + 4, e->channel);
        put64(resume + HEADER, below(30) ? e->log.acked : odd_number());
        if (!e->released && below(20))
            push(fd, resume, sizeof resume);
        execs_bury();
    }
    for (uint32_t n = below(100); n && host.state != LINK_NONE && !shutting_down; n--) {
        push(fd, frame, make_frame(any_type()));
        play();
        stage_step();
        if (below(2))
            throw_away(fd);
    }
    link_close();
    close(fd);
}

void fuzz_frames(void)
{
    one_link(LINK_FIRST);
    while (!shutting_down && below(3))
        one_link(LINK_DIALLED);
    stage_clear();
}
