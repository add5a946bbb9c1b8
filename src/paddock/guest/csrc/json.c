/* JSON text for the file calls. */
#include "files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct text out = {.fd = 1};

void text_flush(struct text *t)
{
    size_t done = 0;
    while (done < t->size) {
        ssize_t n = write(t->fd, t->bytes + done, t->size - done);
        if (n < 0 && errno != EINTR)
            _exit(EPIPE);
        if (n > 0)
            done += (size_t)n;
    }
    t->size = 0;
}

void text_add(struct text *t, const char *bytes, size_t size)
{
    while (size) {
        size_t room = sizeof t->bytes - t->size;
        size_t part = size < room ? size : room;
        memcpy(t->bytes + t->size, bytes, part);
        t->size += part;
        bytes += part;
        size -= part;
        if (t->size == sizeof t->bytes)
            text_flush(t);
    }
}

void text_put(struct text *t, const char *literal)
{
    text_add(t, literal, strlen(literal));
}

void text_number(struct text *t, int64_t number)
{
    char digits[24];
    text_add(t, digits, (size_t)snprintf(digits, sizeof digits, "%lld", (long long)number));
}

/* The length of the well-formed UTF-8 sequence at `s`, 0 for none. A NUL ends every sequence. */
static size_t utf8_length(const unsigned char *s)
{
    static const struct { unsigned char mask, lead; uint32_t least; } kinds[] = {
        {0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000},
    };
    for (size_t n = 0; n < 4; n++) {
        if ((s[0] & kinds[n].mask) != kinds[n].lead)
            continue;
        uint32_t point = s[0] & (unsigned char)~kinds[n].mask;
        for (size_t i = 1; i <= n; i++) {
            if ((s[i] & 0xc0) != 0x80)
                return 0;
            point = point << 6 | (s[i] & 0x3f);
        }
        bool fine = point >= kinds[n].least && point <= 0x10ffff && !(point >= 0xd800 && point <= 0xdfff);
        return fine ? n + 1 : 0;
    }
    return 0;
}

void text_string(struct text *t, const char *bytes)
{
    const unsigned char *s = (const unsigned char *)bytes;
    char escaped[8];
    text_put(t, "\"");
    while (*s) {
        size_t size = utf8_length(s);
        if (size == 0)
            snprintf(escaped, sizeof escaped, "\\udc%02x", *s++);
        else if (size == 1 && (*s == '"' || *s == '\\'))
            snprintf(escaped, sizeof escaped, "\\%c", *s++);
        else if (size == 1 && (*s < 0x20 || *s == 0x7f))
            snprintf(escaped, sizeof escaped, "\\u%04x", *s++);
        else {
            text_add(t, (const char *)s, size);
            s += size;
            continue;
        }
        text_put(t, escaped);
    }
    text_put(t, "\"");
}

static const char *type_name(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR: return "directory";
    case S_IFLNK: return "symlink";
    case S_IFIFO: return "fifo";
    case S_IFSOCK: return "socket";
    case S_IFBLK: return "block";
    case S_IFCHR: return "char";
    default: return "file";
    }
}

int64_t stat_mtime(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

void text_entry(struct text *t, const char *name, const char *path, const struct stat *st, const char *target)
{
    char mode[8];
    snprintf(mode, sizeof mode, "%04o", (unsigned)st->st_mode & 07777);
    text_put(t, "{\"name\":");
    text_string(t, name);
    text_put(t, ",\"path\":");
    text_string(t, path);
    text_put(t, ",\"type\":\"");
    text_put(t, type_name(st->st_mode));
    text_put(t, "\",\"size\":");
    text_number(t, st->st_size);
    text_put(t, ",\"mode\":\"");
    text_put(t, mode);
    text_put(t, "\",\"uid\":");
    text_number(t, st->st_uid);
    text_put(t, ",\"gid\":");
    text_number(t, st->st_gid);
    text_put(t, ",\"mtime\":");
    text_number(t, stat_mtime(st));
    if (target) {
        text_put(t, ",\"target\":");
        text_string(t, target);
    }
    text_put(t, "}\n");
}
