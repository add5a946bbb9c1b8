/* PID 1 of a sandbox, read from top to bottom: set up, serve, reap. */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINK_FD = 3, EVENTS = 64 };

int poller;
bool is_init;
struct source signals = {.kind = SOURCE_SIGNALS, .fd = -1};

static void reap(void);

/* ## Set up */

static _Noreturn void die(const char *what)
{
    dprintf(2, "paddock-guest: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static void set_up_descriptors(void)
{
    if (fcntl(LINK_FD, F_GETFD) < 0)
        die("no link on descriptor 3");
    close_from(LINK_FD + 1);
    fcntl(LINK_FD, F_SETFD, FD_CLOEXEC);
    fcntl(LINK_FD, F_SETFL, fcntl(LINK_FD, F_GETFL) | O_NONBLOCK);
    oom_prepare();
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing < 0)
        die("/dev/null");
    for (int fd = 0; fd < 3; fd++)
        dup2(nothing, fd);
    if (nothing > 3)
        close(nothing);
    /* Thousands of execs need thousands of descriptors here; commands get the limit we were given. */
    getrlimit(RLIMIT_NOFILE, &files_limit);
    struct rlimit raised = {files_limit.rlim_max, files_limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &raised);
}

/* The kernel keeps from PID 1 every signal sent inside that has no handler, even SIGKILL. So none gets one: SIGCHLD,
 * and for a guest that is not PID 1 SIGTERM, arrive as data. What our
 * parent ignored must not reach commands either. */
static void set_up_signals(void)
{
    const int ignored[] = {SIGPIPE, SIGHUP, SIGINT};
    const unsigned long plain[8] = {0}; /* SIG_DFL, for the signals of the C library too, which hides them */
    for (int number = 1; number <= 64; number++)
        syscall(SYS_rt_sigaction, number, plain, NULL, 8);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        sigaction(ignored[i], &ignore, NULL);
    sigset_t taken;
    sigemptyset(&taken);
    sigaddset(&taken, SIGCHLD);
    if (!is_init)
        sigaddset(&taken, SIGTERM);
    sigprocmask(SIG_SETMASK, &taken, NULL);
    signals.fd = signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC);
    if (signals.fd < 0 || !watch_fd(&signals, EPOLLIN))
        die("signalfd");
}

/* What the runtime was started with is nobody's business inside. */
static void forget_environment(char **environment)
{
    for (; *environment; environment++)
        memset(*environment, 0, strlen(*environment));
}

static void set_up(char **environment)
{
    forget_environment(environment);
    is_init = getpid() == 1;
    set_up_descriptors();
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!is_init)
        prctl(PR_SET_CHILD_SUBREAPER, 1);
    setsid();
    umask(022);
    mallopt(M_TRIM_THRESHOLD, 65536);
    mallopt(M_MMAP_THRESHOLD, 65536);
    mallopt(M_TOP_PAD, 16384);
    if (getrandom(boot_id, sizeof boot_id, 0) != sizeof boot_id)
        die("getrandom");
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0)
        die("epoll");
    set_up_signals();
    link_open(LINK_FD, LINK_FIRST);
}

/* ## Serve */

static bool take_signals(void)
{
    struct signalfd_siginfo info;
    bool children = false;
    while (read(signals.fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            children = true;
        else if (info.ssi_signo == SIGTERM)
            shutdown_begin(0, 0);
    }
    return children;
}

/* True: children have ended. */
static bool notice(const struct epoll_event *event)
{
    struct source *s = event->data.ptr;
    struct exec *e = s->exec;
    if (s->fd < 0)
        return false;
    switch (s->kind) {
    case SOURCE_LINK:
        host.readable |= (event->events & ~(uint32_t)EPOLLOUT) != 0;
        host.hung_up |= (event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
        host.writable |= (event->events & EPOLLOUT) != 0;
        break;
    case SOURCE_SIGNALS:
        return take_signals();
    case SOURCE_STDIN:
        input_write(e);
        break;
    case SOURCE_STDOUT:
        e->out_ready = true;
        streams_ready(e);
        break;
    case SOURCE_STDERR:
        e->err_ready = true;
        streams_ready(e);
        break;
    case SOURCE_REPORT:
        shepherd_read(e);
        break;
    }
    return false;
}

static _Noreturn void serve(void)
{
    struct epoll_event events[EVENTS];
    bool busy = true;
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS, busy ? 0 : timers_wait());
        bool children = false;
        for (int i = 0; i < count; i++)
            children |= notice(&events[i]);
        timers_run();
        busy = link_read();
        busy |= streams_pump();
        link_flush();
        if (children) { /* after the flush: what a command said goes out before its shepherd is buried */
            reap();
            busy |= streams_pump();
            link_flush();
        }
        busy |= link_more();
        execs_bury();
    }
}

/* ## Reap */

/* Whatever ends as our child: shepherds, builtins, and the orphans of shepherds that were killed. A shepherd that was
 * stopped goes on. */
static void reap(void)
{
    int status;
    struct rusage usage;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG | WUNTRACED, &usage)) > 0) {
        struct exec *e = exec_of_pid(pid);
        if (WIFSTOPPED(status)) {
            if (e)
                kill(pid, SIGCONT);
            continue;
        }
        if (e)
            exec_reaped(e, status, &usage);
    }
    if (pid < 0 && errno == ECHILD)
        shutdown_check();
}

int main(int argc, char **argv, char **environment)
{
    (void)argc;
    (void)argv;
    set_up(environment);
    serve();
}
