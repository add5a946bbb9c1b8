/* The reader of tar archives. Everything in them is untrusted: each length is checked before it is used. */
#include "tar.h"

#include "files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EXTENSION = 1 << 20 };
static const int64_t MAX_SECONDS = 9000000000; /* nanoseconds must fit 63 bits */

struct header { /* as in the archive */
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, target[100];
    char magic[6], version[2], owner[32], group[32], major[8], minor[8], prefix[155], padding[12];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK, "a tar header is one block");

static _Noreturn void bad(const char *name, const char *why)
{
    fail_with(EINVAL, name, why);
}

int64_t tar_padding(int64_t size)
{
    return (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;
}

/* ## Fields */

/* Octal text, or with the top bit set a big-endian number, as GNU writes large ones. */
static int64_t number(const char *field, size_t size)
{
    const unsigned char *at = (const unsigned char *)field;
    uint64_t value = 0;
    if (at[0] & 0x80) {
        bool negative = at[0] & 0x40;
        for (size_t i = 0; i < size; i++) {
            if (i + 8 < size && i > 0 && at[i] != (negative ? 0xff : 0))
                bad("", "a number in the archive is too large");
            value = value << 8 | (i ? at[i] : negative ? 0xff : at[0] & 0x7f);
        }
        return (int64_t)value;
    }
    size_t i = 0;
    while (i < size && (at[i] == ' ' || at[i] == 0))
        i++;
    for (; i < size && at[i] >= '0' && at[i] <= '7'; i++)
        value = value << 3 | (at[i] & 7u);
    if (i < size && at[i] != ' ' && at[i] != 0)
        bad("", "a number in the archive does not parse");
    return (int64_t)(value & INT64_MAX);
}

static bool checksum_fits(const struct header *h)
{
    const unsigned char *at = (const unsigned char *)h;
    int64_t sum = 0;
    for (size_t i = 0; i < TAR_BLOCK; i++) {
        bool own = i >= offsetof(struct header, checksum) && i < offsetof(struct header, type);
        sum += own ? ' ' : at[i];
    }
    return sum == number(h->checksum, sizeof h->checksum);
}

static void copy_field(char *to, const char *field, size_t size)
{
    size_t length = strnlen(field, size);
    memcpy(to, field, length);
    to[length] = 0;
}

static void header_name(char *name, const struct header *h)
{
    size_t at = 0;
    if (!memcmp(h->magic, "ustar\0", 6) && h->prefix[0]) {
        copy_field(name, h->prefix, sizeof h->prefix);
        at = strlen(name);
        name[at++] = '/';
    }
    copy_field(name + at, h->name, sizeof h->name);
}

/* ## Extensions that come before the entry they describe */

struct extension {
    char *name, *target; /* allocated, or NULL */
    int64_t size, mtime;
    bool has_size, has_mtime;
};

static char *read_extension(tar_source *source, int64_t size)
{
    if (size < 0 || size > MAX_EXTENSION)
        bad("", "an extended header is too long");
    size_t whole = (size_t)(size + tar_padding(size));
    char *data = malloc(whole + 1);
    if (!data)
        fail(ENOMEM, "");
    if (source(data, whole) != whole)
        bad("", "the archive ends in the middle");
    data[size] = 0;
    return data;
}

static int64_t parse_ns(const char *text)
{
    bool negative = *text == '-';
    char *end;
    errno = 0;
    long long seconds = strtoll(text, &end, 10);
    if (errno || end == text || (*end && *end != '.') || seconds > MAX_SECONDS || seconds < -MAX_SECONDS)
        bad("", "a time in the archive does not parse");
    int64_t fraction = 0, unit = 100000000;
    if (*end == '.')
        for (end++; *end >= '0' && *end <= '9'; end++, unit /= 10)
            fraction += (*end - '0') * unit;
    return seconds * 1000000000 + (negative ? -fraction : fraction);
}

static void replace(char **at, const char *value)
{
    free(*at);
    *at = strdup(value);
    if (!*at)
        fail(ENOMEM, "");
}

static void pax_record(struct extension *x, const char *key, const char *value)
{
    if (!strcmp(key, "path")) {
        replace(&x->name, value);
    } else if (!strcmp(key, "linkpath")) {
        replace(&x->target, value);
    } else if (!strcmp(key, "mtime")) {
        x->mtime = parse_ns(value);
        x->has_mtime = true;
    } else if (!strcmp(key, "size")) {
        char *end;
        errno = 0;
        x->size = strtoll(value, &end, 10);
        x->has_size = true;
        if (errno || *end || end == value || x->size < 0)
            bad("", "a size in the archive does not parse");
    } else if (!strncmp(key, "GNU.sparse.", 11)) {
        bad("", "sparse files are not supported");
    }
}

/* Records are `LENGTH KEY=VALUE\n`, the length counting all of it. */
static void parse_pax(struct extension *x, char *data, int64_t size)
{
    char *at = data, *stop = data + size;
    while (at < stop && *at) {
        char *space, *equals;
        errno = 0;
        long length = strtol(at, &space, 10);
        if (errno || space == at || *space != ' ' || length <= space + 1 - at || length > stop - at ||
            at[length - 1] != '\n')
            bad("", "a pax header does not parse");
        char *end = at + length - 1;
        *end = 0;
        equals = memchr(space + 1, '=', (size_t)(end - space - 1));
        if (!equals || strlen(equals + 1) != (size_t)(end - equals - 1))
            bad("", "a pax header does not parse");
        *equals = 0;
        pax_record(x, space + 1, equals + 1);
        at += length;
    }
}

static void extension_free(struct extension *x)
{
    free(x->name);
    free(x->target);
    *x = (struct extension){0};
}

/* ## Entries */

static enum tar_type entry_type(const struct header *h, const char *name)
{
    switch (h->type) {
    case 0: case '0': case '7':
        return name[0] && name[strlen(name) - 1] == '/' ? TAR_FOLDER : TAR_FILE; /* as before there were types */
    case '1': return TAR_HARDLINK;
    case '2': return TAR_SYMLINK;
    case '5': return TAR_FOLDER;
    case '3': case '4': bad(name, "the archive contains a device");
    case '6': bad(name, "the archive contains a fifo");
    default: bad(name, "the archive contains an entry of an unknown type");
    }
}

static void take_text(char *to, const char *from, const char *what)
{
    if (strlen(from) >= TAR_NAME)
        fail(ENAMETOOLONG, what);
    strcpy(to, from);
}

static void fill_entry(struct tar_entry *e, const struct header *h, const struct extension *x)
{
    header_name(e->name, h);
    copy_field(e->target, h->target, sizeof h->target);
    if (x->name)
        take_text(e->name, x->name, "path");
    if (x->target)
        take_text(e->target, x->target, "linkpath");
    e->type = entry_type(h, e->name);
    e->mode = (uint32_t)number(h->mode, sizeof h->mode) & 01777;
    e->size = x->has_size ? x->size : number(h->size, sizeof h->size);
    int64_t seconds = number(h->mtime, sizeof h->mtime);
    if (seconds > MAX_SECONDS || seconds < -MAX_SECONDS)
        seconds = 0;
    e->mtime = x->has_mtime ? x->mtime : seconds * 1000000000;
    if (e->size < 0 || e->size > INT64_MAX - TAR_BLOCK)
        bad(e->name, "a size in the archive does not parse");
    if (e->type != TAR_FILE)
        e->size = 0;
}

static bool is_zero(const struct header *h)
{
    const char *at = (const char *)h;
    return !at[0] && !memcmp(at, at + 1, TAR_BLOCK - 1);
}

bool tar_next(tar_source *source, struct tar_entry *entry)
{
    struct header h;
    struct extension x = {0};
    for (;;) {
        if (source(&h, sizeof h) != sizeof h)
            bad("", "the archive ends in the middle");
        if (is_zero(&h)) {
            extension_free(&x);
            return false;
        }
        if (!checksum_fits(&h))
            bad("", "this is not a tar archive");
        if (!strchr("xgLK", h.type) || !h.type)
            break;
        int64_t size = number(h.size, sizeof h.size);
        char *data = read_extension(source, size);
        if (h.type == 'x')
            parse_pax(&x, data, size);
        else if (h.type == 'L')
            replace(&x.name, data);
        else if (h.type == 'K')
            replace(&x.target, data);
        free(data);
    }
    fill_entry(entry, &h, &x);
    extension_free(&x);
    return true;
}
