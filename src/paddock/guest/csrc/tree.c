/* Trees of processes, seen through /proc, and their end.
 *
 * Every process of the sandbox has a living shepherd above it. A child of ours that is neither a shepherd nor a builtin
 * lost its shepherd to somebody's kill: such orphans are ended at once. */
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHUTDOWN_PAUSE = 5, SHUTDOWN_LIMIT = 10000, SWEEP_FIRST = 1, SWEEP_LAST = 100 };

struct process { pid_t pid, parent; bool zombie; signed char below; };
struct table { struct process *all; size_t count, room; };

/* ## Looking */

static bool read_process(int proc, const char *name, struct process *p)
{
    char path[32], text[512];
    snprintf(path, sizeof path, "%.16s/stat", name);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size <= 0)
        return false;
    text[size] = 0;
    char *end = strrchr(text, ')'), state;
    int parent;
    if (!end || sscanf(end + 1, " %c %d", &state, &parent) != 2)
        return false;
    *p = (struct process){atoi(name), parent, state == 'Z' || state == 'X', -1};
    return true;
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const struct process *)a)->pid, y = ((const struct process *)b)->pid;
    return (x > y) - (x < y);
}

static bool scan(struct table *t)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    *t = (struct table){0};
    if (!dir)
        return false;
    while ((entry = readdir(dir))) {
        struct process p;
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || !read_process(dirfd(dir), entry->d_name, &p))
            continue;
        if (t->count == t->room) {
            size_t more = t->room ? t->room * 2 : 64;
            struct process *grown = realloc(t->all, more * sizeof *grown);
            if (!grown)
                break; /* those we know are a beginning: rounds repeat */
            t->all = grown;
            t->room = more;
        }
        t->all[t->count++] = p;
    }
    closedir(dir);
    if (t->count)
        qsort(t->all, t->count, sizeof *t->all, by_pid);
    return t->count > 0;
}

static struct process *find(const struct table *t, pid_t pid)
{
    struct process key = {.pid = pid};
    return t->count ? bsearch(&key, t->all, t->count, sizeof key, by_pid) : NULL;
}

/* Whether `p` descends from the root, remembered along the way. Pids may be reused while we look, so a walk is
 * bounded: a loop of parents can appear. */
static bool is_below(const struct table *t, struct process *p, pid_t root, unsigned depth)
{
    if (p->below >= 0)
        return p->below;
    struct process *parent = find(t, p->parent);
    bool below = p->parent == root ||
                 (parent && parent != p && depth < t->count && p->pid != root && is_below(t, parent, root, depth + 1));
    p->below = below;
    return below;
}

bool tree_below(pid_t root, struct pid_list *list)
{
    struct table t;
    *list = (struct pid_list){NULL, 0};
    if (!scan(&t))
        return false;
    list->pids = malloc(t.count * sizeof *list->pids);
    for (size_t i = 0; list->pids && i < t.count; i++) {
        struct process *p = &t.all[i];
        if (!p->zombie && p->pid != root && is_below(&t, p, root, 0))
            list->pids[list->count++] = p->pid;
    }
    free(t.all);
    return list->pids != NULL;
}

int tree_signal(pid_t root, int number)
{
    struct pid_list list;
    if (!tree_below(root, &list))
        return -1;
    for (size_t i = 0; i < list.count; i++)
        kill(list.pids[i], number);
    free(list.pids);
    return (int)list.count;
}

/* ## Orphans */

static struct timer sweep_timer;
static uint32_t sweep_pause;

static int signal_unowned(int number)
{
    struct table t;
    pid_t self = getpid();
    int count = 0;
    if (!scan(&t))
        return -1;
    for (size_t i = 0; i < t.count; i++) /* below a shepherd or a builtin: not ours to sweep */
        if (t.all[i].pid == self || exec_of_pid(t.all[i].pid))
            t.all[i].below = 0;
    for (size_t i = 0; i < t.count; i++) {
        struct process *p = &t.all[i];
        if (p->below != 0 && is_below(&t, p, self, 0) && !p->zombie) {
            kill(p->pid, number);
            count++;
        }
    }
    free(t.all);
    return count;
}

static void sweep_round(struct timer *timer)
{
    (void)timer;
    if (signal_unowned(SIGKILL) == 0)
        return;
    timer_set(&sweep_timer, sweep_pause, sweep_round);
    if (sweep_pause < SWEEP_LAST)
        sweep_pause *= 2;
}

void orphans_sweep(void)
{
    sweep_pause = SWEEP_FIRST;
    sweep_round(&sweep_timer);
}

/* ## Shutdown */

bool shutting_down;
static int shutdown_code;
static struct timer shutdown_timer;
static uint64_t shutdown_deadline;

static _Noreturn void leave(void)
{
    if (host.state == LINK_OPEN)
        link_flush();
    _exit(shutdown_code);
}

/* When PID 1 exits, the kernel ends whoever is left. */
static void kill_everything(struct timer *timer)
{
    (void)timer;
    if (is_init) {
        kill(-1, SIGKILL);
        leave();
    }
    if (tree_signal(getpid(), SIGKILL) == 0 || now_ms() > shutdown_deadline)
        leave();
    timer_set(&shutdown_timer, SHUTDOWN_PAUSE, kill_everything);
}

void shutdown_begin(uint32_t grace, int exit_code)
{
    if (!shutting_down)
        shutdown_code = exit_code;
    else if (shutdown_timer.slot && now_ms() + grace >= shutdown_timer.due)
        return;
    bool first = !shutting_down;
    shutting_down = true;
    shutdown_deadline = now_ms() + grace + SHUTDOWN_LIMIT;
    if (grace && first) {
        int told = tree_signal(getpid(), SIGTERM);
        if (told == 0)
            leave(); /* nobody is there to wait for */
        if (told < 0 && is_init)
            kill(-1, SIGTERM); /* shepherds block it */
    }
    timer_set(&shutdown_timer, grace, kill_everything);
}

void shutdown_check(void)
{
    if (shutting_down)
        leave();
}
