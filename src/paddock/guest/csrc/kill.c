/* The end of an exec by force: SIGTERM to its tree once, then rounds of SIGKILL until its shepherd, alone, has left. */
#include "guest.h"

#include <signal.h>
#include <sys/ioctl.h>

enum { BUILTIN_GRACE = 250, FIRST_KILL_PAUSE = 1, LAST_KILL_PAUSE = 200, EMPTY_ROUNDS = 12 };

static void kill_round(struct timer *t)
{
    struct exec *e = OWNER(t, struct exec, kill);
    if (!e->pid)
        return;
    if (e->flags & BUILTIN) {
        kill(e->pid, SIGKILL);
        return;
    }
    uint64_t begun = now_ms();
    int found = tree_signal(e->pid, SIGKILL);
    if (found < 0 && e->command > 1)
        kill(-e->command, SIGKILL);
    /* An empty tree whose shepherd stays: somebody holds it. What it might still start comes to us. */
    e->empty_rounds = found == 0 ? e->empty_rounds + 1 : 0;
    if (e->empty_rounds >= EMPTY_ROUNDS)
        kill(e->pid, SIGKILL);
    /* A bomb may fork faster than we look: bounded rounds, and at most a third of a processor. */
    uint64_t spent = (now_ms() - begun) * 2;
    timer_set(&e->kill, spent > e->kill_pause ? spent : e->kill_pause, kill_round);
    if (e->kill_pause < LAST_KILL_PAUSE)
        e->kill_pause *= 2;
}

void exec_kill(struct exec *e, uint32_t grace, int cause)
{
    if (!e->pid)
        return;
    if (!e->cause)
        e->cause = (uint8_t)cause;
    e->kill_pause = FIRST_KILL_PAUSE;
    timer_cancel(&e->timeout);
    if (e->flags & BUILTIN) {
        kill(e->pid, SIGTERM); /* `write` removes its temporary file */
        timer_set(&e->kill, BUILTIN_GRACE, kill_round);
        return;
    }
    if (!grace) {
        kill_round(&e->kill);
        return;
    }
    if (!e->term_done && tree_signal(e->pid, SIGTERM) < 0 && e->command > 1)
        kill(-e->command, SIGTERM);
    if (!e->term_done || now_ms() + grace < e->kill.due)
        timer_set(&e->kill, grace, kill_round);
    e->term_done = true;
}

void exec_signal(struct exec *e, int number, bool whole_tree)
{
    if (!(e->flags & BUILTIN))
        shepherd_read(e); /* a command that has ended may have given its number to another */
    if (e->state != RUNNING || e->over || !e->pid)
        return;
    if (whole_tree && !(e->flags & BUILTIN)) {
        tree_signal(e->pid, number);
        return;
    }
    pid_t group = e->command;
    int front = 0;
    if (e->flags & TERMINAL && !ioctl(e->out.fd, TIOCGPGRP, &front) && front > 1)
        group = front;
    if (group > 1)
        kill(-group, number);
}
