/* write: the bytes go into a file without a name, which takes the place of the old one when all have come. Where the
 * file system has no nameless files, into one beside it that is removed on failure. */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static struct {
    struct parent folder;
    int fd;
    char name[32]; /* empty: nameless */
} temporary = {.fd = -1};

static void remove_temporary(void)
{
    if (temporary.name[0])
        unlinkat(temporary.folder.fd, temporary.name, 0);
    temporary.name[0] = 0;
}

static void terminated(int number)
{
    (void)number;
    remove_temporary();
    _exit(ECANCELED);
}

struct parent parent_open(const char *path)
{
    struct parent p;
    char *folder = strdup(path);
    if (!folder)
        fail(ENOMEM, path);
    base_name(path, p.name, sizeof p.name);
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/')
        end--;
    while (end > 0 && folder[end - 1] != '/')
        end--;
    folder[end] = 0;
    p.fd = open(end ? folder : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (p.fd < 0)
        fail(errno, path);
    free(folder);
    return p;
}

void temporary_name(char *name, size_t size)
{
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) < 0)
        random = (uint64_t)getpid();
    snprintf(name, size, ".paddock-%016llx", (unsigned long long)random);
}

struct timespec from_ns(int64_t ns)
{
    int64_t seconds = ns / 1000000000, rest = ns % 1000000000;
    if (rest < 0) {
        seconds--;
        rest += 1000000000;
    }
    return (struct timespec){seconds, rest};
}

/* A link in the place of the file is followed: what it points to is replaced, as opening it would. */
static char *follow(const char *path)
{
    char *at = strdup(path), target[PATH_MAX];
    for (int hops = 0; at && hops < 40; hops++) {
        ssize_t size = readlink(at, target, sizeof target - 1);
        if (size < 0)
            return at;
        target[size] = 0;
        if (target[0] == '/') {
            free(at);
            at = strdup(target);
        } else {
            char *slash = strrchr(at, '/');
            if (slash)
                slash[1] = 0;
            char *next = slash ? join(at, target) : strdup(target);
            free(at);
            at = next;
        }
    }
    fail(at ? ELOOP : ENOMEM, path);
}

static void open_temporary(const char *path)
{
    int folder = temporary.folder.fd;
    temporary.fd = openat(folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (temporary.fd >= 0)
        return;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT)
        fail(errno, path);
    struct sigaction act = {.sa_handler = terminated};
    sigaction(SIGTERM, &act, NULL);
    on_failure = remove_temporary;
    temporary_name(temporary.name, sizeof temporary.name);
    temporary.fd = openat(folder, temporary.name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (temporary.fd < 0) {
        temporary.name[0] = 0;
        fail(errno, path);
    }
}

static void give_name(const char *name, const char *path)
{
    char nameless[64];
    snprintf(nameless, sizeof nameless, "/proc/self/fd/%d", temporary.fd);
    if (linkat(AT_FDCWD, nameless, temporary.folder.fd, name, AT_SYMLINK_FOLLOW) == 0)
        return;
    int error = errno;
    if (error == ENOENT && linkat(temporary.fd, "", temporary.folder.fd, name, AT_EMPTY_PATH) == 0)
        return; /* no /proc here */
    fail(error, path);
}

static void commit(bool exclusive, const char *path)
{
    const char *name = temporary.folder.name;
    int folder = temporary.folder.fd;
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL); /* from here on it is too late to stop half-way */
    if (!temporary.name[0] && exclusive) {
        give_name(name, path);
        return;
    }
    if (!temporary.name[0]) {
        char visible[32];
        temporary_name(visible, sizeof visible);
        give_name(visible, path);
        strcpy(temporary.name, visible);
        on_failure = remove_temporary;
    }
    if (exclusive) {
        if (linkat(folder, temporary.name, folder, name, 0))
            fail(errno, path);
        remove_temporary();
    } else if (renameat(folder, temporary.name, folder, name)) {
        fail(errno, path);
    }
    temporary.name[0] = 0;
}

static void receive(const char *path)
{
    static char buffer[131072];
    bool direct = true;
    for (;;) {
        ssize_t n = direct ? splice(0, NULL, temporary.fd, NULL, 1 << 20, SPLICE_F_MOVE)
                           : read(0, buffer, sizeof buffer);
        if (n < 0 && direct && errno == EINVAL) {
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
            write_all(temporary.fd, buffer, (size_t)n, path);
    }
}

void call_write(char **argv)
{
    bool parents = flag_argument(argv[2]), exclusive = flag_argument(argv[3]);
    char *path = exclusive ? argv[0] : follow(argv[0]);
    struct stat old;
    if (path[strlen(path) - 1] == '/')
        fail(EISDIR, argv[0]);
    if (parents)
        make_parents(path);
    temporary.folder = parent_open(path);
    if (is_dots(temporary.folder.name))
        fail(EISDIR, argv[0]);
    bool exists = !fstatat(temporary.folder.fd, temporary.folder.name, &old, AT_SYMLINK_NOFOLLOW);
    if (exists && exclusive)
        fail(EEXIST, argv[0]);
    if (exists && S_ISDIR(old.st_mode))
        fail(EISDIR, argv[0]);
    if (exists && !S_ISREG(old.st_mode))
        fail_with(EINVAL, argv[0], "not a regular file");
    mode_t mode = mode_argument(argv[1], exists ? old.st_mode & 0777 : 0644);
    struct timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    if (strcmp(argv[4], "-"))
        times[1] = from_ns(number_argument(argv[4], INT64_MIN));
    open_temporary(argv[0]);
    receive(argv[0]);
    if (fchmod(temporary.fd, mode) || futimens(temporary.fd, times))
        fail(errno, argv[0]);
    commit(exclusive, argv[0]);
    char name[NAME_MAX + 1];
    base_name(argv[0], name, sizeof name);
    print_entry(&out, temporary.folder.fd, temporary.folder.name, name, argv[0], false);
}
