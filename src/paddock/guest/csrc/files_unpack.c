/* unpack: an archive's entries below a folder, and never anywhere else. Each name is walked one component at a time
 * without following links, so neither the archive nor somebody who swaps folders meanwhile can lead out. */
#include "files.h"
#include "tar.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct folder { struct folder *next; uint32_t mode; int64_t mtime; char path[]; };

static int destination;
static struct folder *folders; /* their modes and times come last: they would not survive what goes in */
static int64_t files, bytes;

static size_t from_stdin(void *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = read(0, (char *)data + done, size - done);
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            fail(errno, "stdin");
        if (n > 0)
            done += (size_t)n;
    }
    return done;
}

/* ## Names */

/* In place: without `.`, doubled and trailing slashes. Empty: the destination itself. */
static void clean_name(char *name)
{
    char *to = name, *start = name;
    if (name[0] == '/')
        fail_with(EINVAL, name, "the archive contains an absolute name");
    char *whole = strdup(name);
    for (char *at = start; *at;) {
        size_t size = strcspn(at, "/");
        if (size == 2 && !memcmp(at, "..", 2))
            fail_with(EINVAL, whole ? whole : name, "the archive contains a name with `..`");
        if (size > NAME_MAX)
            fail(ENAMETOOLONG, whole ? whole : name);
        bool skip = size == 0 || (size == 1 && at[0] == '.');
        char *next = at + size + (at[size] == '/');
        if (!skip) {
            if (to != name)
                *to++ = '/';
            memmove(to, at, size);
            to += size;
        }
        at = next;
    }
    *to = 0;
    free(whole);
}

static int step(int folder, const char *part, bool make, const char *path)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(folder, part, flags);
    if (fd < 0 && errno == ENOENT && make) {
        if (mkdirat(folder, part, 0755) && errno != EEXIST)
            fail(errno, path);
        fd = openat(folder, part, flags);
    }
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        fail_with(errno, path, "a link or file stands where the archive has a folder");
    if (fd < 0)
        fail(errno, path);
    return fd;
}

/* The folder that holds `name`, and its last component. The last folder is kept open for the next entry. */
static int walk(const char *name, const char **last, bool make)
{
    static char kept[TAR_NAME];
    static int kept_fd = -1;
    const char *slash = strrchr(name, '/');
    size_t size = slash ? (size_t)(slash - name) : 0;
    *last = slash ? slash + 1 : name;
    if (!size)
        return destination;
    if (kept_fd >= 0 && strlen(kept) == size && !memcmp(kept, name, size))
        return kept_fd;
    char part[NAME_MAX + 1];
    int fd = destination;
    for (const char *at = name; at < name + size; at++) {
        size_t length = strcspn(at, "/");
        memcpy(part, at, length);
        part[length] = 0;
        int next = step(fd, part, make, name);
        if (fd != destination)
            close(fd);
        fd = next;
        at += length;
    }
    if (kept_fd >= 0)
        close(kept_fd);
    memcpy(kept, name, size);
    kept[size] = 0;
    kept_fd = fd;
    return fd;
}

/* ## Entries */

static void clear_place(int folder, const char *last, const char *name)
{
    if (unlinkat(folder, last, 0) && errno != ENOENT)
        fail(errno, name);
}

static void unpack_content(int fd, const struct tar_entry *e)
{
    static char buffer[131072];
    int64_t left = e->size;
    while (left) {
        size_t want = left < (int64_t)sizeof buffer ? (size_t)left : sizeof buffer;
        size_t got = from_stdin(buffer, want);
        write_all(fd, buffer, got, e->name);
        if (got < want)
            fail_with(EINVAL, e->name, "the archive ends in the middle");
        left -= (int64_t)got;
    }
    size_t padding = (size_t)tar_padding(e->size);
    if (from_stdin(buffer, padding) != padding)
        fail_with(EINVAL, e->name, "the archive ends in the middle");
}

static void unpack_file(int folder, const char *last, const struct tar_entry *e)
{
    struct timespec times[2] = {{0, UTIME_OMIT}, from_ns(e->mtime)};
    clear_place(folder, last, e->name);
    int fd = openat(folder, last, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        fail(errno, e->name);
    unpack_content(fd, e);
    if (fchmod(fd, e->mode))
        fail(errno, e->name);
    futimens(fd, times);
    close(fd);
    files++;
    bytes += e->size;
}

static void unpack_folder(int folder, const char *last, const struct tar_entry *e)
{
    if (*last)
        close(step(folder, last, true, e->name));
    struct folder *f = malloc(sizeof *f + strlen(e->name) + 1);
    if (!f)
        fail(ENOMEM, e->name);
    strcpy(f->path, e->name);
    f->mode = e->mode;
    f->mtime = e->mtime;
    f->next = folders;
    folders = f;
}

static void unpack_symlink(int folder, const char *last, const struct tar_entry *e)
{
    struct timespec times[2] = {{0, UTIME_OMIT}, from_ns(e->mtime)};
    clear_place(folder, last, e->name);
    if (symlinkat(e->target, folder, last))
        fail(errno, e->name);
    utimensat(folder, last, times, AT_SYMLINK_NOFOLLOW);
    files++;
}

static void unpack_hardlink(struct tar_entry *e)
{
    const char *last, *old;
    clean_name(e->target);
    int source = dup(walk(e->target, &old, false));
    int folder = walk(e->name, &last, true);
    struct stat st;
    if (source < 0 || fstatat(source, old, &st, AT_SYMLINK_NOFOLLOW))
        fail(errno, e->target);
    if (!S_ISREG(st.st_mode))
        fail_with(EINVAL, e->name, "a hard link to something that is not a file");
    if (strcmp(e->name, e->target)) {
        clear_place(folder, last, e->name);
        if (linkat(source, old, folder, last, 0))
            fail(errno, e->name);
    }
    close(source);
    files++;
}

static void unpack_entry(struct tar_entry *e)
{
    const char *last;
    clean_name(e->name);
    if (!e->name[0] && e->type != TAR_FOLDER)
        fail_with(EINVAL, e->name, "the archive contains an empty name");
    if (e->type == TAR_HARDLINK) {
        unpack_hardlink(e);
        return;
    }
    int folder = walk(e->name, &last, true);
    if (e->type == TAR_FILE)
        unpack_file(folder, last, e);
    else if (e->type == TAR_SYMLINK)
        unpack_symlink(folder, last, e);
    else
        unpack_folder(folder, last, e);
}

/* The destination itself keeps its mode: it was there before. */
static void finish_folders(void)
{
    for (struct folder *f = folders; f; f = f->next) {
        const char *last = NULL;
        struct timespec times[2] = {{0, UTIME_OMIT}, from_ns(f->mtime)};
        if (!f->path[0])
            continue;
        int folder = walk(f->path, &last, false);
        int fd = step(folder, last, false, f->path);
        futimens(fd, times);
        if (fchmod(fd, f->mode))
            fail(errno, f->path);
        close(fd);
    }
}

void call_unpack(char **argv)
{
    static struct tar_entry entry;
    static char rest[65536];
    make_parents(argv[0]);
    if (mkdir(argv[0], 0755) && errno != EEXIST)
        fail(errno, argv[0]);
    destination = open(argv[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (destination < 0)
        fail(errno, argv[0]);
    while (tar_next(from_stdin, &entry))
        unpack_entry(&entry);
    finish_folders();
    while (from_stdin(rest, sizeof rest) == sizeof rest)
        ; /* archives are padded */
    text_put(&out, "{\"files\":");
    text_number(&out, files);
    text_put(&out, ",\"bytes\":");
    text_number(&out, bytes);
    text_put(&out, "}\n");
}
