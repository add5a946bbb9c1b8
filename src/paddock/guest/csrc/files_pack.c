/* pack: a tar archive of a file or folder as a stream, with pax headers for what ustar cannot say. A file that changes
 * while it is read still takes exactly the size its header gave. Sockets, devices and fifos are left out. */
#include "files.h"
#include "tar.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEEPEST = 256, OCTAL_8 = 07777777, ARCHIVE_RECORD = 10240 };
static const int64_t OCTAL_12 = 077777777777;

static char buffer[131072];
static size_t filled;
static int64_t total;

static void flush(void)
{
    write_all(1, buffer, filled, "stdout");
    filled = 0;
}

static void put(const void *data, size_t size)
{
    total += (int64_t)size;
    while (size) {
        size_t room = sizeof buffer - filled, part = size < room ? size : room;
        if (data) {
            memcpy(buffer + filled, data, part);
            data = (const char *)data + part;
        } else {
            memset(buffer + filled, 0, part);
        }
        filled += part;
        size -= part;
        if (filled == sizeof buffer)
            flush();
    }
}

static void put_zeros(int64_t size)
{
    while (size > 0) {
        size_t part = size < 65536 ? (size_t)size : 65536;
        put(NULL, part);
        size -= (int64_t)part;
    }
}

/* ## Headers */

static void octal(unsigned char *field, size_t size, int64_t value)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%0*llo", (int)size - 1, (unsigned long long)value);
    memcpy(field, digits, size);
}

static void put_header(const char *name, const struct stat *st, int64_t size, char type, const char *target)
{
    unsigned char h[TAR_BLOCK] = {0};
    int64_t mtime = st->st_mtim.tv_sec;
    unsigned sum = 0;
    memcpy(h, name, strnlen(name, 100));
    octal(h + 100, 8, st->st_mode & 07777);
    octal(h + 108, 8, st->st_uid > OCTAL_8 ? 0 : st->st_uid);
    octal(h + 116, 8, st->st_gid > OCTAL_8 ? 0 : st->st_gid);
    octal(h + 124, 12, size > OCTAL_12 ? 0 : size);
    octal(h + 136, 12, mtime < 0 || mtime > OCTAL_12 ? 0 : mtime);
    memset(h + 148, ' ', 8);
    h[156] = (unsigned char)type;
    memcpy(h + 157, target, strnlen(target, 100));
    memcpy(h + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof h; i++)
        sum += h[i];
    octal(h + 148, 7, sum);
    put(h, sizeof h);
}

static bool is_plain(const char *name)
{
    for (const char *at = name; *at; at++)
        if (*at & 0x80)
            return false;
    return strlen(name) <= 100;
}

static void pax_add(struct text *t, const char *key, const char *value)
{
    size_t body = strlen(key) + strlen(value) + 3, length = body + 1;
    char digits[24];
    while (length != body + (size_t)snprintf(digits, sizeof digits, "%zu", length))
        length = body + strlen(digits);
    text_put(t, digits);
    text_put(t, " ");
    text_put(t, key);
    text_put(t, "=");
    text_put(t, value);
    text_put(t, "\n");
}

static void pax_number(struct text *t, const char *key, int64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    pax_add(t, key, digits);
}

static void pax_time(struct text *t, const struct timespec *at)
{
    char digits[40];
    int64_t seconds = at->tv_sec;
    long ns = at->tv_nsec;
    const char *sign = "";
    if (seconds < 0) { /* -1 s + 0.25 s is written -0.75 */
        sign = "-";
        seconds = ns ? -seconds - 1 : -seconds;
        ns = ns ? 1000000000 - ns : 0;
    }
    snprintf(digits, sizeof digits, "%s%lld.%09ld", sign, (long long)seconds, ns);
    pax_add(t, "mtime", digits);
}

static void put_entry(const char *name, const struct stat *st, int64_t size, char type, const char *target)
{
    static struct text x; /* names are below PATH_MAX: it never fills, so it never writes */
    x.size = 0;
    if (!is_plain(name) || !is_plain(target))
        pax_add(&x, "hdrcharset", "BINARY");
    if (!is_plain(name))
        pax_add(&x, "path", name);
    if (!is_plain(target))
        pax_add(&x, "linkpath", target);
    if (size > OCTAL_12)
        pax_number(&x, "size", size);
    if (st->st_uid > OCTAL_8)
        pax_number(&x, "uid", st->st_uid);
    if (st->st_gid > OCTAL_8)
        pax_number(&x, "gid", st->st_gid);
    if (st->st_mtim.tv_nsec || st->st_mtim.tv_sec < 0 || st->st_mtim.tv_sec > OCTAL_12)
        pax_time(&x, &st->st_mtim);
    if (x.size) {
        struct stat plain = {.st_mode = 0644};
        put_header("PaxHeader", &plain, (int64_t)x.size, 'x', "");
        put(x.bytes, x.size);
        put_zeros(tar_padding((int64_t)x.size));
    }
    put_header(name, st, size, type, target);
}

/* ## Entries */

static void pack_content(int fd, int64_t size, const char *name)
{
    int64_t left = size;
    while (left) {
        if (filled == sizeof buffer)
            flush();
        size_t room = sizeof buffer - filled;
        ssize_t n = read(fd, buffer + filled, left < (int64_t)room ? (size_t)left : room);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            fail(errno, name);
        if (n == 0)
            break; /* it shrank */
        filled += (size_t)n;
        total += n;
        left -= n;
    }
    put_zeros(left + tar_padding(size));
}

static void pack_any(int folder, const char *at, const char *name, int flags, int level);

static void pack_folder(int fd, const char *name, const struct stat *st, int level)
{
    char *shown = join(name, "");
    struct dirent *entry;
    if (level >= DEEPEST || strlen(shown) >= PATH_MAX)
        fail(ENAMETOOLONG, name);
    put_entry(shown, st, 0, '5', "");
    DIR *dir = fdopendir(fd);
    if (!dir)
        fail(errno, name);
    while ((entry = readdir(dir))) {
        if (is_dots(entry->d_name))
            continue;
        char *below = join(shown, entry->d_name);
        pack_any(fd, entry->d_name, below, O_NOFOLLOW, level + 1);
        free(below);
    }
    closedir(dir);
    free(shown);
}

static void pack_link(int folder, const char *at, const char *name, const struct stat *st)
{
    char target[PATH_MAX];
    ssize_t size = readlinkat(folder, at, target, sizeof target - 1);
    if (size < 0)
        fail(errno, name);
    target[size] = 0;
    put_entry(name, st, 0, '2', target);
}

static void pack_any(int folder, const char *at, const char *name, int flags, int level)
{
    struct stat st;
    if (strlen(name) >= PATH_MAX)
        fail(ENAMETOOLONG, name);
    if (fstatat(folder, at, &st, flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0)) {
        if (errno == ENOENT && level)
            return; /* gone meanwhile */
        fail(errno, name);
    }
    if (S_ISLNK(st.st_mode)) {
        pack_link(folder, at, name, &st);
        return;
    }
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return;
    int fd = openat(folder, at, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags);
    if (fd < 0 && errno == ENOENT && level)
        return;
    if (fd < 0 || fstat(fd, &st))
        fail(errno, name);
    if (S_ISDIR(st.st_mode)) {
        pack_folder(fd, name, &st, level);
        return;
    }
    if (S_ISREG(st.st_mode)) {
        put_entry(name, &st, st.st_size, '0', "");
        pack_content(fd, st.st_size, name);
    }
    close(fd);
}

/* The name asked for may be a link, which is followed; links below are packed as links. */
void call_pack(char **argv)
{
    char name[NAME_MAX + 1];
    base_name(argv[0], name, sizeof name);
    if (is_dots(name)) {
        char *real = realpath(argv[0], NULL);
        if (!real)
            fail(errno, argv[0]);
        base_name(real, name, sizeof name);
    }
    struct stat st;
    if (stat(argv[0], &st))
        fail(errno, argv[0]);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        fail_with(EINVAL, argv[0], "neither a file nor a folder");
    pack_any(AT_FDCWD, argv[0], strcmp(name, "/") ? name : ".", 0, 0);
    put_zeros(TAR_BLOCK * 2);
    put_zeros((ARCHIVE_RECORD - total % ARCHIVE_RECORD) % ARCHIVE_RECORD);
    flush();
}
