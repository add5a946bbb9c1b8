/* The START payload. Strings stay where they are in the frame: the bytes of each are moved one down, over the end of
 * its own length field, which makes room for a NUL behind it. */
#include "bytes.h"
#include "guest.h"

#include <stdlib.h>

enum { MAX_ARGV = 4096, MAX_ENVIRONMENT = 4096, MAX_LIMITS = 64, LIMIT_SIZE = 17 };

struct reader { unsigned char *at; size_t left; bool bad; };

static unsigned char *take(struct reader *r, size_t size)
{
    if (r->bad || size > r->left) {
        r->bad = true;
        return NULL;
    }
    unsigned char *at = r->at;
    r->at += size;
    r->left -= size;
    return at;
}

static uint16_t take16(struct reader *r)
{
    unsigned char *p = take(r, 2);
    return p ? get16(p) : 0;
}

static uint32_t take32(struct reader *r)
{
    unsigned char *p = take(r, 4);
    return p ? get32(p) : 0;
}

static char *take_bytes(struct reader *r, uint32_t *size)
{
    *size = take32(r);
    return (char *)take(r, *size);
}

static char *take_string(struct reader *r)
{
    uint32_t size;
    char *p = take_bytes(r, &size);
    if (!p || memchr(p, 0, size)) {
        r->bad = true;
        return NULL;
    }
    memmove(p - 1, p, size);
    p[(ptrdiff_t)size - 1] = 0;
    return p - 1;
}

static void take_strings(struct reader *r, char **out, uint32_t count)
{
    for (uint32_t i = 0; i < count && !r->bad; i++)
        out[i] = take_string(r);
    out[count] = NULL;
}

static uint32_t take_count(struct reader *r, uint32_t most)
{
    uint32_t count = take32(r);
    if (count > most || count > r->left / 4) {
        r->bad = true;
        return 0;
    }
    return count;
}

static void take_limits(struct start *s, struct reader *r)
{
    s->limit_count = take16(r);
    if (s->limit_count > MAX_LIMITS || s->limit_count > r->left / LIMIT_SIZE) {
        r->bad = true;
        return;
    }
    s->limits = malloc((s->limit_count + 1) * sizeof *s->limits);
    if (!s->limits)
        r->bad = true;
    for (uint32_t i = 0; i < s->limit_count && !r->bad; i++) {
        unsigned char *p = take(r, LIMIT_SIZE);
        s->limits[i] = (struct limit){p[0], get64(p + 1), get64(p + 9)};
    }
}

static void take_lists(struct start *s, struct reader *r)
{
    s->argc = take_count(r, MAX_ARGV);
    if (r->bad || !s->argc || !(s->argv_memory = malloc((s->argc + 2) * sizeof(char *)))) {
        r->bad = true;
        return;
    }
    s->argv = s->argv_memory + 1;
    take_strings(r, s->argv, s->argc);
    uint32_t count = take_count(r, MAX_ENVIRONMENT);
    if (r->bad || !(s->environment = malloc((count + 1) * sizeof(char *)))) {
        r->bad = true;
        return;
    }
    take_strings(r, s->environment, count);
}

bool start_parse(struct start *s, unsigned char *payload, size_t size)
{
    struct reader r = {payload, size, false};
    memset(s, 0, sizeof *s);
    s->flags = take32(&r);
    s->uid = take32(&r);
    s->gid = take32(&r);
    s->rows = take16(&r);
    s->columns = take16(&r);
    s->timeout = take32(&r);
    s->grace = take32(&r);
    s->window = take32(&r);
    take_limits(s, &r);
    if (!r.bad)
        take_lists(s, &r);
    s->directory = take_string(&r);
    s->metadata = take_bytes(&r, &s->metadata_size);
    bool window_fits = s->window >= MIN_WINDOW && s->window <= MAX_WINDOW;
    if (r.bad || r.left || s->flags & ~(uint32_t)START_FLAGS || !window_fits || s->metadata_size > MAX_METADATA) {
        start_free(s);
        return false;
    }
    return true;
}

void start_free(struct start *s)
{
    free(s->limits);
    free(s->argv_memory);
    free(s->environment);
    memset(s, 0, sizeof *s);
}
