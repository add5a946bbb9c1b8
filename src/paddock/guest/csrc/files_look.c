/* stat, list, read. */
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

enum { DEEPEST = 256 };

bool is_dots(const char *name)
{
    return !strcmp(name, ".") || !strcmp(name, "..");
}

/* The last component, without trailing slashes; `/` for the root. */
const char *base_name(const char *path, char *room, size_t size)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    if (begin == end)
        begin = end - 1;
    if (end - begin >= size)
        fail(ENAMETOOLONG, path);
    memcpy(room, path + begin, end - begin);
    room[end - begin] = 0;
    return room;
}

char *join(const char *folder, const char *name)
{
    size_t size = strlen(folder);
    char *joined = malloc(size + strlen(name) + 2);
    if (!joined)
        fail(ENOMEM, name);
    sprintf(joined, "%s%s%s", folder, size && folder[size - 1] != '/' ? "/" : "", name);
    return joined;
}

void print_entry(struct text *t, int folder, const char *name, const char *shown, const char *path, bool follow)
{
    struct stat st;
    char target[PATH_MAX];
    if (fstatat(folder, name, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW))
        fail(errno, path);
    ssize_t size = S_ISLNK(st.st_mode) ? readlinkat(folder, name, target, sizeof target - 1) : -1;
    if (size >= 0)
        target[size] = 0;
    text_entry(t, shown, path, &st, size >= 0 ? target : NULL);
}

void call_stat(char **argv)
{
    char name[NAME_MAX + 1];
    bool follow = flag_argument(argv[1]);
    print_entry(&out, AT_FDCWD, argv[0], base_name(argv[0], name, sizeof name), argv[0], follow);
}

/* ## list */

struct listing {
    const char *top;
    int64_t depth, left;
};

static bool list_folder(struct listing *l, int fd, const char *relative, int level);

/* False: the limit is reached. */
static bool list_entry(struct listing *l, int folder, const char *name, const char *relative, int level)
{
    struct stat st;
    char target[PATH_MAX];
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW))
        return true; /* gone meanwhile */
    if (l->left == 0) {
        text_put(&out, "{\"truncated\":true}\n");
        return false;
    }
    if (l->left > 0)
        l->left--;
    ssize_t size = S_ISLNK(st.st_mode) ? readlinkat(folder, name, target, sizeof target - 1) : -1;
    if (size >= 0)
        target[size] = 0;
    char *path = join(l->top, relative);
    text_entry(&out, relative, path, &st, size >= 0 ? target : NULL);
    free(path);
    if (!S_ISDIR(st.st_mode) || (l->depth >= 0 && level >= l->depth) || level >= DEEPEST)
        return true;
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 || list_folder(l, fd, relative, level + 1); /* a folder we may not read is listed itself */
}

static bool list_folder(struct listing *l, int fd, const char *relative, int level)
{
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    bool more = true;
    if (!dir)
        fail(errno, relative);
    while (more && (entry = readdir(dir))) {
        if (is_dots(entry->d_name))
            continue;
        char *name = *relative ? join(relative, entry->d_name) : strdup(entry->d_name);
        if (!name)
            fail(ENOMEM, relative);
        more = list_entry(l, dirfd(dir), entry->d_name, name, level);
        free(name);
    }
    closedir(dir);
    return more;
}

void call_list(char **argv)
{
    struct listing l = {argv[0], number_argument(argv[1], -1), number_argument(argv[2], -1)};
    int fd = open(argv[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        fail(errno, argv[0]);
    if (l.depth != 0)
        list_folder(&l, fd, "", 1);
    else
        close(fd);
}

/* ## read */

void write_all(int fd, const void *data, size_t size, const char *path)
{
    const char *at = data;
    while (size) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno != EINTR)
            fail(errno, path);
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        }
    }
}

/* Copy `most` bytes, or all with -1. Not every kind of file can be spliced into every other. */
void copy_rest(int from, int to, int64_t most, const char *path)
{
    static char buffer[131072];
    bool direct = true;
    while (most != 0) {
        size_t want = most < 0 || most > (1 << 20) ? 1 << 20 : (size_t)most;
        size_t part = want < sizeof buffer ? want : sizeof buffer;
        ssize_t n = direct ? sendfile(to, from, NULL, want) : read(from, buffer, part);
        if (n < 0 && direct && (errno == EINVAL || errno == ENOSYS)) {
            direct = false;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            fail(errno, path);
        if (n == 0)
            return;
        if (!direct)
            write_all(to, buffer, (size_t)n, path);
        if (most > 0)
            most -= n;
    }
}

void call_read(char **argv)
{
    static struct text line = {.fd = 2};
    int64_t offset = number_argument(argv[1], 0), length = number_argument(argv[2], -1);
    char name[NAME_MAX + 1];
    struct stat st;
    int fd = open(argv[0], O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st))
        fail(errno, argv[0]);
    if (S_ISDIR(st.st_mode))
        fail(EISDIR, argv[0]);
    if (!S_ISREG(st.st_mode))
        fail_with(EINVAL, argv[0], "not a regular file");
    text_entry(&line, base_name(argv[0], name, sizeof name), argv[0], &st, NULL);
    text_flush(&line);
    if (offset && lseek(fd, offset, SEEK_SET) < 0)
        fail(errno, argv[0]);
    copy_rest(fd, 1, length, argv[0]);
}
