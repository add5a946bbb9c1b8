/* mkdir, move, remove. */
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

/* ## mkdir */

void make_parents(const char *path)
{
    char *at = strdup(path);
    if (!at)
        fail(ENOMEM, path);
    for (char *slash = strchr(at + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        if (slash[-1] == '/' || !slash[strspn(slash, "/")])
            continue; /* doubled, or trailing */
        *slash = 0;
        if (mkdir(at, 0755) && errno != EEXIST && errno != EROFS && errno != EACCES && errno != EPERM)
            fail(errno, at);
        *slash = '/';
    }
    free(at);
}

void call_mkdir(char **argv)
{
    bool parents = flag_argument(argv[2]);
    mode_t mode = mode_argument(argv[1], 0755);
    struct stat st;
    char name[NAME_MAX + 1];
    if (parents)
        make_parents(argv[0]);
    if (mkdir(argv[0], mode)) {
        int error = errno;
        if (!parents || stat(argv[0], &st))
            fail(error, argv[0]);
        if (!S_ISDIR(st.st_mode))
            fail(ENOTDIR, argv[0]);
    } else if (chmod(argv[0], mode)) {
        fail(errno, argv[0]);
    }
    print_entry(&out, AT_FDCWD, argv[0], base_name(argv[0], name, sizeof name), argv[0], true);
}

/* ## remove */

struct level { dev_t device; ino_t inode; char name[NAME_MAX + 1]; struct level *above; };

/* The first folder in the current one, after removing everything that is not a folder. False: it is empty now. */
static bool empty_until_folder(char *folder, const char *path)
{
    DIR *dir = opendir(".");
    struct dirent *entry;
    bool found = false;
    if (!dir)
        fail(errno, path);
    while (!found && (entry = readdir(dir))) {
        if (is_dots(entry->d_name) || !unlinkat(AT_FDCWD, entry->d_name, 0) || errno == ENOENT)
            continue;
        if (errno != EISDIR && errno != EPERM)
            fail(errno, path);
        struct stat st;
        if (fstatat(AT_FDCWD, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(st.st_mode))
            fail(EPERM, path);
        snprintf(folder, NAME_MAX + 1, "%s", entry->d_name);
        found = true;
    }
    closedir(dir);
    return found;
}

static void step_into(int folder, const char *name, struct level **top, const char *path)
{
    struct stat st;
    struct level *l = malloc(sizeof *l);
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (!l || fd < 0 || fstat(fd, &st) || fchdir(fd))
        fail(errno, path);
    close(fd);
    l->device = st.st_dev;
    l->inode = st.st_ino;
    snprintf(l->name, sizeof l->name, "%s", name);
    l->above = *top;
    *top = l;
}

/* Walks by changing the working directory, so neither the depth of the tree nor the length of its paths matters.
 * Going up it checks that `..` is where it came from: somebody may move the folder meanwhile. */
void remove_tree(int folder, const char *name, const char *path)
{
    struct level *top = NULL;
    char next[NAME_MAX + 1];
    step_into(folder, name, &top, path);
    while (top) {
        if (empty_until_folder(next, path)) {
            step_into(AT_FDCWD, next, &top, path);
            continue;
        }
        struct level *done = top;
        struct stat st;
        top = done->above;
        if (top && (chdir("..") || stat(".", &st)))
            fail(errno, path);
        if (top && (st.st_dev != top->device || st.st_ino != top->inode))
            fail_with(EBUSY, path, "a folder was moved while it was removed");
        if (unlinkat(top ? AT_FDCWD : folder, done->name, AT_REMOVEDIR))
            fail(errno, path);
        free(done);
    }
}

void call_remove(char **argv)
{
    bool recursive = flag_argument(argv[1]);
    struct parent p = parent_open(argv[0]);
    struct stat st;
    if (!strcmp(p.name, "/") || is_dots(p.name))
        fail(EINVAL, argv[0]);
    if (fstatat(p.fd, p.name, &st, AT_SYMLINK_NOFOLLOW))
        fail(errno, argv[0]);
    if (S_ISDIR(st.st_mode) && recursive)
        remove_tree(p.fd, p.name, argv[0]);
    else if (unlinkat(p.fd, p.name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0))
        fail(errno, argv[0]);
}

/* ## move */

static int rename_to(const struct parent *from, const struct parent *to, const char *name, bool overwrite)
{
    struct stat st;
    if (overwrite)
        return renameat(from->fd, from->name, to->fd, name) ? errno : 0;
    if (!syscall(SYS_renameat2, from->fd, from->name, to->fd, name, RENAME_NOREPLACE))
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    if (!fstatat(to->fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return EEXIST;
    return renameat(from->fd, from->name, to->fd, name) ? errno : 0;
}

static struct parent copied;

static void remove_copy(void)
{
    struct stat st;
    on_failure = NULL;
    if (fstatat(copied.fd, copied.name, &st, AT_SYMLINK_NOFOLLOW))
        return;
    if (S_ISDIR(st.st_mode))
        remove_tree(copied.fd, copied.name, copied.name);
    else
        unlinkat(copied.fd, copied.name, 0);
}

/* Another file system: a copy under a name of its own, which then takes the place in one step. */
static void move_across(const struct parent *from, const struct parent *to, bool overwrite, char **argv)
{
    struct stat st;
    if (!overwrite && !fstatat(to->fd, to->name, &st, AT_SYMLINK_NOFOLLOW))
        fail(EEXIST, argv[1]);
    copied.fd = to->fd;
    temporary_name(copied.name, sizeof copied.name);
    on_failure = remove_copy;
    copy_tree(from->fd, from->name, to->fd, copied.name, argv[0]);
    int error = rename_to(&copied, to, to->name, overwrite);
    if (error)
        fail(error, argv[1]);
    on_failure = NULL;
    if (fstatat(from->fd, from->name, &st, AT_SYMLINK_NOFOLLOW))
        fail(errno, argv[0]);
    if (S_ISDIR(st.st_mode))
        remove_tree(from->fd, from->name, argv[0]);
    else if (unlinkat(from->fd, from->name, 0))
        fail(errno, argv[0]);
}

void call_move(char **argv)
{
    bool overwrite = flag_argument(argv[2]);
    struct parent from = parent_open(argv[0]), to = parent_open(argv[1]);
    struct stat st;
    char name[NAME_MAX + 1];
    if (fstatat(from.fd, from.name, &st, AT_SYMLINK_NOFOLLOW))
        fail(errno, argv[0]);
    int error = rename_to(&from, &to, to.name, overwrite);
    if (error == EXDEV)
        move_across(&from, &to, overwrite, argv);
    else if (error)
        fail(error, argv[1]);
    print_entry(&out, to.fd, to.name, base_name(argv[1], name, sizeof name), argv[1], false);
}
