/* watch: changes below a folder, one line each, from inotify. */
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

enum { MAX_WATCHES = 8192, DEEPEST = 256, PAIR_MS = 20 };
static const uint32_t MASK = IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM |
                             IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_DONT_FOLLOW | IN_EXCL_UNLINK;

static int notifier;
static bool recursive;
static struct { int wd; char *path; } watches[MAX_WATCHES]; /* touched only as far as used; the first is the top */
static size_t watch_count;
static struct { uint32_t cookie; char *path; bool folder; } leaving; /* a MOVED_FROM that waits for its MOVED_TO */
static char *last_modified;

/* ## Lines */

static void say_event(const char *event, const char *path, const char *to)
{
    text_put(&out, "{\"event\":\"");
    text_put(&out, event);
    text_put(&out, "\"");
    if (path) {
        text_put(&out, ",\"path\":");
        text_string(&out, path);
    }
    if (to) {
        text_put(&out, ",\"to\":");
        text_string(&out, to);
    }
    text_put(&out, "}\n");
    free(last_modified);
    last_modified = NULL;
}

/* A write is several events; one line is enough until something else happens or the batch ends. */
static void say_modified(const char *path)
{
    if (last_modified && !strcmp(last_modified, path))
        return;
    say_event("modified", path, NULL);
    last_modified = strdup(path);
}

/* ## Watches */

static bool is_within(const char *path, const char *folder)
{
    size_t size = strlen(folder);
    return !strncmp(path, folder, size) && (path[size] == '/' || !path[size]);
}

static void forget_at(size_t i)
{
    free(watches[i].path);
    watches[i] = watches[--watch_count];
}

static bool add_watch(const char *path)
{
    if (watch_count == MAX_WATCHES) {
        say_event("overflow", path, NULL);
        return false;
    }
    int wd = inotify_add_watch(notifier, path, watch_count ? MASK | IN_ONLYDIR : MASK & ~(uint32_t)IN_DONT_FOLLOW);
    if (wd < 0) {
        if (!watch_count)
            fail(errno, path);
        if (errno == ENOSPC || errno == ENOMEM)
            say_event("overflow", path, NULL);
        return false;
    }
    for (size_t i = 0; i < watch_count; i++)
        if (watches[i].wd == wd) { /* known by another path: it was moved */
            free(watches[i].path);
            watches[i].path = strdup(path);
            return true;
        }
    watches[watch_count].wd = wd;
    watches[watch_count++].path = strdup(path);
    return true;
}

/* `tell`: what is in a new folder may have come before we watched it. */
static void add_tree(const char *path, bool tell, int level)
{
    if (!add_watch(path) || !recursive || level >= DEEPEST)
        return;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (level ? O_NOFOLLOW : 0));
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        struct stat st;
        if (is_dots(entry->d_name) || fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        char *below = join(path, entry->d_name);
        if (tell)
            say_event("created", below, NULL);
        if (S_ISDIR(st.st_mode))
            add_tree(below, tell, level + 1);
        free(below);
    }
    if (dir)
        closedir(dir);
}

static void drop_tree(const char *path)
{
    for (size_t i = watch_count; i-- > 1;)
        if (is_within(watches[i].path, path)) {
            inotify_rm_watch(notifier, watches[i].wd);
            forget_at(i);
        }
}

static void rename_tree(const char *from, const char *to)
{
    for (size_t i = 1; i < watch_count; i++) {
        if (!is_within(watches[i].path, from))
            continue;
        char *rest = watches[i].path + strlen(from), *moved = malloc(strlen(to) + strlen(rest) + 1);
        if (!moved)
            fail(ENOMEM, to);
        sprintf(moved, "%s%s", to, rest);
        free(watches[i].path);
        watches[i].path = moved;
    }
}

/* ## Events */

static void settle_leaving(void)
{
    if (!leaving.path)
        return;
    say_event("deleted", leaving.path, NULL);
    if (leaving.folder)
        drop_tree(leaving.path);
    free(leaving.path);
    leaving.path = NULL;
}

static void arrived(const char *path, bool folder)
{
    say_event("created", path, NULL);
    if (folder && recursive)
        add_tree(path, true, 1);
}

static void moved_here(const struct inotify_event *event, const char *path, bool folder)
{
    if (!leaving.path || leaving.cookie != event->cookie) {
        settle_leaving();
        arrived(path, folder);
        return;
    }
    say_event("moved", leaving.path, path);
    if (folder)
        rename_tree(leaving.path, path);
    free(leaving.path);
    leaving.path = NULL;
}

static void changed(const struct inotify_event *event, const char *path)
{
    bool folder = event->mask & IN_ISDIR;
    if (!(event->mask & IN_MOVED_TO))
        settle_leaving();
    if (event->mask & IN_MOVED_TO) {
        moved_here(event, path, folder);
    } else if (event->mask & IN_MOVED_FROM) {
        leaving.cookie = event->cookie;
        leaving.path = strdup(path);
        leaving.folder = folder;
    } else if (event->mask & IN_CREATE) {
        arrived(path, folder);
    } else if (event->mask & IN_DELETE) {
        say_event("deleted", path, NULL);
    } else if (event->mask & (IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB)) {
        say_modified(path);
    }
}

static void take_event(const struct inotify_event *event)
{
    size_t i = 0;
    if (event->mask & IN_Q_OVERFLOW) {
        say_event("overflow", watches[0].path, NULL);
        return;
    }
    while (i < watch_count && watches[i].wd != event->wd)
        i++;
    if (i == watch_count)
        return;
    if (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED)) {
        if (i == 0) { /* the top is gone, and nothing more can happen in it */
            settle_leaving();
            say_event("deleted", watches[0].path, NULL);
            text_flush(&out);
            _exit(0);
        }
        if (event->mask & IN_IGNORED)
            forget_at(i);
        return;
    }
    char *path = event->len ? join(watches[i].path, event->name) : strdup(watches[i].path);
    if (!path)
        fail(ENOMEM, watches[i].path);
    if (event->len || i == 0) /* a folder's own change is told by its parent */
        changed(event, path);
    free(path);
}

void call_watch(char **argv)
{
    static char batch[65536] __attribute__((aligned(__alignof__(struct inotify_event))));
    recursive = flag_argument(argv[1]);
    notifier = inotify_init1(IN_CLOEXEC);
    if (notifier < 0)
        fail(errno, argv[0]);
    add_tree(argv[0], false, 0);
    text_put(&out, "{\"event\":\"ready\"}\n");
    text_flush(&out);
    for (;;) {
        struct pollfd wait = {notifier, POLLIN, 0};
        if (poll(&wait, 1, leaving.path ? PAIR_MS : -1) == 0) {
            settle_leaving();
        } else {
            ssize_t size = read(notifier, batch, sizeof batch);
            if (size < 0 && errno != EINTR)
                fail(errno, argv[0]);
            for (char *at = batch; at < batch + size;) {
                const struct inotify_event *event = (const struct inotify_event *)at;
                take_event(event);
                at += sizeof *event + event->len;
            }
        }
        text_flush(&out);
        free(last_modified);
        last_modified = NULL;
    }
}
