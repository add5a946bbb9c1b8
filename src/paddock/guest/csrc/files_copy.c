/* A copy of a file or a tree, for a move between file systems. Links are copied, never followed. */
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

enum { DEEPEST = 256 };

static void copy_any(int from, const char *name, int to, const char *new_name, const char *path, int level);

static void keep_times(int folder, const char *name, const struct stat *st)
{
    struct timespec times[2] = {st->st_atim, st->st_mtim};
    utimensat(folder, name, times, AT_SYMLINK_NOFOLLOW);
}

static void copy_file(int from, const char *name, int to, const char *new_name, const struct stat *st, const char *path)
{
    int source = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int target = openat(to, new_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (source < 0 || target < 0)
        fail(errno, path);
    copy_rest(source, target, -1, path);
    if (fchmod(target, st->st_mode & 0777))
        fail(errno, path);
    close(source);
    close(target);
}

static void copy_link(int from, const char *name, int to, const char *new_name, const char *path)
{
    char target[PATH_MAX];
    ssize_t size = readlinkat(from, name, target, sizeof target - 1);
    if (size < 0)
        fail(errno, path);
    target[size] = 0;
    if (symlinkat(target, to, new_name))
        fail(errno, path);
}

static void copy_folder(int from, const char *name, int to, const char *new_name, const struct stat *st,
                        const char *path, int level)
{
    if (level >= DEEPEST)
        fail(ENAMETOOLONG, path);
    if (mkdirat(to, new_name, 0700))
        fail(errno, path);
    int source = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int target = openat(to, new_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (source < 0 || target < 0)
        fail(errno, path);
    DIR *dir = fdopendir(source);
    struct dirent *entry;
    if (!dir)
        fail(errno, path);
    while ((entry = readdir(dir)))
        if (!is_dots(entry->d_name))
            copy_any(source, entry->d_name, target, entry->d_name, path, level + 1);
    if (fchmod(target, st->st_mode & 0777))
        fail(errno, path);
    closedir(dir);
    close(target);
}

static void copy_any(int from, const char *name, int to, const char *new_name, const char *path, int level)
{
    struct stat st;
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW))
        fail(errno, path);
    switch (st.st_mode & S_IFMT) {
    case S_IFREG:
        copy_file(from, name, to, new_name, &st, path);
        break;
    case S_IFLNK:
        copy_link(from, name, to, new_name, path);
        break;
    case S_IFDIR:
        copy_folder(from, name, to, new_name, &st, path, level);
        break;
    case S_IFIFO:
        if (mkfifoat(to, new_name, st.st_mode & 0777))
            fail(errno, path);
        break;
    default:
        fail_with(EINVAL, path, "a device or socket cannot move between file systems");
    }
    keep_times(to, new_name, &st);
}

void copy_tree(int from, const char *name, int to, const char *new_name, const char *path)
{
    copy_any(from, name, to, new_name, path, 0);
}
