/* File calls: an exec whose program is a function of the guest. Each runs in a child, with the rights of the user it
 * works for, and says how it failed with an errno as its exit code and one line on stderr. */
#include "files.h"
#include "guest.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const struct {
    const char *name;
    uint32_t arguments;
    void (*call)(char **argv);
} calls[] = {
    {"stat", 2, call_stat},     {"list", 3, call_list},   {"read", 3, call_read},     {"write", 5, call_write},
    {"mkdir", 3, call_mkdir},   {"move", 3, call_move},   {"remove", 2, call_remove}, {"watch", 2, call_watch},
    {"pack", 1, call_pack},     {"unpack", 1, call_unpack},
};

#define NAME(error) {error, #error}
static const struct { int error; const char *name; } names[] = {
    NAME(EPERM), NAME(ENOENT), NAME(EINTR), NAME(EIO), NAME(ENXIO), NAME(E2BIG), NAME(EBADF), NAME(EAGAIN),
    NAME(ENOMEM), NAME(EACCES), NAME(EBUSY), NAME(EEXIST), NAME(EXDEV), NAME(ENODEV), NAME(ENOTDIR), NAME(EISDIR),
    NAME(EINVAL), NAME(ENFILE), NAME(EMFILE), NAME(ETXTBSY), NAME(EFBIG), NAME(ENOSPC), NAME(ESPIPE), NAME(EROFS),
    NAME(EMLINK), NAME(EPIPE), NAME(ENAMETOOLONG), NAME(ENOSYS), NAME(ENOTEMPTY), NAME(ELOOP), NAME(EOVERFLOW),
    NAME(EOPNOTSUPP), NAME(EDQUOT), NAME(ESTALE), NAME(EUCLEAN), NAME(ECANCELED),
};

void (*on_failure)(void);

void fail_with(int error, const char *path, const char *why)
{
    static struct text line = {.fd = 2};
    char number[16];
    const char *name = number;
    snprintf(number, sizeof number, "E%d", error);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].error == error)
            name = names[i].name;
    if (on_failure)
        on_failure();
    text_put(&line, "{\"errno\":\"");
    text_put(&line, name);
    text_put(&line, "\",\"error\":");
    text_string(&line, why);
    text_put(&line, ",\"path\":");
    text_string(&line, path);
    text_put(&line, "}\n");
    text_flush(&line);
    _exit(error);
}

void fail(int error, const char *path)
{
    fail_with(error, path, strerror(error));
}

/* ## Arguments */

bool flag_argument(const char *text)
{
    if (strcmp(text, "0") && strcmp(text, "1"))
        fail_with(EINVAL, text, "a flag has to be 0 or 1");
    return text[0] == '1';
}

int64_t number_argument(const char *text, int64_t least)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno || *end || end == text || number < least)
        fail_with(EINVAL, text, "not a number");
    return number;
}

mode_t mode_argument(const char *text, mode_t otherwise)
{
    char *end;
    if (!strcmp(text, "-"))
        return otherwise;
    unsigned long mode = strtoul(text, &end, 8);
    if (*end || end == text || mode > 07777)
        fail_with(EINVAL, text, "not a mode");
    return (mode_t)mode;
}

/* ## The call */

void builtin_main(const struct child_plan *plan)
{
    const struct start *s = plan->start;
    int stage, error;
    child_stdio(plan, -1);
    if ((error = child_rights(s, s->flags & TERMINAL, &stage)))
        fail(error, s->directory);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change of user, which clears it */
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (strcmp(calls[i].name, s->argv[0]))
            continue;
        if (s->argc != calls[i].arguments + 1)
            fail_with(EINVAL, s->argv[0], "wrong number of arguments");
        for (uint32_t a = 1; a < s->argc; a++)
            if (!*s->argv[a])
                fail(ENOENT, "");
        calls[i].call(s->argv + 1);
        text_flush(&out);
        _exit(0);
    }
    fail_with(ENOSYS, s->argv[0], "no such builtin");
}
