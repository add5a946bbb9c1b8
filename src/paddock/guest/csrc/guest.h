/* The guest: PID 1 of a sandbox. The protocol is described in docs/GUEST_PROTOCOL.md.
 *
 *   main.c      set up, serve, reap
 *   link.c      frames in and out of the one link to the host; says.c: what there is to say
 *   dial.c      where a link comes from: inherited, or dialled again
 *   requests.c  what each frame of the host does
 *   start.c     the START payload
 *   exec.c      the table of execs, their beginning and end; kill.c: by force; channels.c: their numbers
 *   shepherd.c  the process above each command; child.c: from fork to exec
 *   streams.c   output of pipes and terminals; log.c: kept until acknowledged; input.c: stdin
 *   tree.c      everything that descends from a process, and its end
 *   builtin.c   file calls, in processes of their own: files_*.c, tar_*.c, watch.c, json.c
 *
 * One process, one thread, one epoll. An exec is freed only at the end of a round (execs_bury), since events of the
 * same round may still point at it. */
#ifndef PADDOCK_GUEST_H
#define PADDOCK_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

enum {
    VERSION = 1,
    HEADER = 12,
    MAX_PAYLOAD = 262144,
    OUTPUT_HEAD = 9,
    STDIN_CREDIT = 262144,
    SECRET_SIZE = 32,
    BOOT_ID_SIZE = 16,
    MAX_EXECS = 4096,
    MAX_METADATA = 65536,
    MIN_WINDOW = 4096,
    MAX_WINDOW = 16 << 20,
};

enum from_host {
    BOOT = 1, WELCOME, ADOPT, START, STDIN, SIGNAL, RESIZE, ACK, RESUME, RELEASE, PING, SHUTDOWN, KILL,
};

enum from_guest {
    HELLO = 64, DIAL, INVENTORY, INVENTORY_END, STARTED, OUTPUT, CREDIT, EXIT, PONG, PROBLEM,
};

enum start_flag { TERMINAL = 1, STDIN_WANTED = 2, BUILTIN = 4, TRANSIENT = 8, START_FLAGS = 15 };
enum outcome { EXITED, SIGNALED, NOT_STARTED, TIMED_OUT, KILLED };
enum stage { STAGE_SET_UP = 1, STAGE_DIRECTORY, STAGE_USER, STAGE_LIMITS, STAGE_EXEC };

/* ## Timers (timers.c). A timer that is not set has slot 0. */

struct timer {
    uint64_t due;
    unsigned slot;
    void (*fire)(struct timer *);
};

uint64_t now_ms(void);
uint64_t wall_ns(void);
void timer_set(struct timer *t, uint64_t in_ms, void (*fire)(struct timer *));
void timer_cancel(struct timer *t);
void timers_run(void);
int timers_wait(void); /* ms to the next one, for epoll_wait; -1 for none */

#define OWNER(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* ## The output log (log.c) */

struct block;
struct log {
    struct block *head, *tail;
    uint64_t acked, end;   /* positions: forgotten below `acked`, nothing yet from `end` on */
    uint64_t delivered;    /* whole frames up to here were given to some link */
    uint64_t sent;         /* the cursor of the present link */
    uint64_t head_at;      /* position of the first byte in `head` */
    struct block *cursor;
    uint32_t cursor_at, cursor_in; /* offset of a record in `cursor`, and of a byte in that record */
    uint32_t last;         /* offset of the last record in `tail` */
};

void *log_room(struct log *log, size_t *room); /* NULL: no memory */
void log_unused(struct log *log);
void log_add(struct log *log, int stream, size_t size);
void log_ack(struct log *log, uint64_t position);
void log_seek(struct log *log, uint64_t position);
size_t log_peek(const struct log *log, int *stream, const void **data);
void log_sent(struct log *log, size_t size);
void log_free(struct log *log);
void *scratch_take(size_t *size); /* a big block for throw-away reads */
void scratch_give(void *data);
void log_trim(void);

/* ## Execs */

enum source_kind { SOURCE_LINK, SOURCE_SIGNALS, SOURCE_STDIN, SOURCE_STDOUT, SOURCE_STDERR, SOURCE_REPORT };
struct exec;
struct source {
    enum source_kind kind;
    int fd;
    struct exec *exec;
};

struct limit { uint8_t resource; uint64_t soft, hard; };

/* A parsed START. The strings lie in the frame. */
struct start {
    uint32_t flags, uid, gid;
    uint16_t rows, columns;
    uint32_t timeout, grace, window;
    struct limit *limits;
    char **argv; /* one free slot stands before it, for the shell of a script without `#!` */
    char **environment;
    uint32_t limit_count, argc;
    char *directory;
    const char *metadata;
    uint32_t metadata_size;
    char **argv_memory;
};

bool start_parse(struct start *start, unsigned char *payload, size_t size);
void start_free(struct start *start);

enum exec_state { FORKED, RUNNING, DRAINING, ENDED };

struct exec {
    struct exec *next, *previous;       /* all execs, oldest first */
    struct exec *by_channel, *by_pid;   /* hash chains */
    struct exec *queue_next, *queue_previous; /* has something to say to the host */
    struct exec *ready_next;            /* has something to read */
    uint32_t channel, flags, window, grace;
    pid_t pid;      /* our child: the shepherd, or the builtin itself; 0 when reaped */
    pid_t command;  /* what the host knows as the pid */
    enum exec_state state;
    uint8_t cause;  /* 0, TIMED_OUT or KILLED */
    bool queued, ready, buried, released, resumed;
    bool started_due, exit_due, started;
    bool out_ready, err_ready;
    struct source in, out, err, report;
    struct log log;
    uint64_t stdout_bytes, stderr_bytes;
    int64_t drain_out, drain_err; /* bytes still to read once the command has ended */

    unsigned char *held;            /* stdin that the process has not taken */
    uint32_t held_size, held_at, credit_due;
    int32_t credit;                 /* what the host may still send */
    uint64_t stdin_received;
    bool stdin_eof, credit_anew, line_open, in_watched;

    uint8_t outcome, stage;
    int32_t code;
    uint64_t started_at, finished_at, user_us, system_us, max_rss;

    struct timer timeout, kill;
    uint32_t kill_pause;
    uint32_t empty_rounds;
    bool term_done, over; /* over: how it ended is known */
    char *metadata;
    uint32_t metadata_size;
};

extern struct exec *execs;
extern unsigned exec_count;
extern struct start_marks { uint32_t top; uint64_t seen[16]; } marks;

struct exec *exec_find(uint32_t channel);
struct exec *exec_of_pid(pid_t pid);
bool channel_take(uint32_t channel);
bool channel_is_late(uint32_t channel);
bool exec_start(uint32_t channel, struct start *start); /* false: protocol violation */
void exec_started(struct exec *e, pid_t command, uint64_t at);
void exec_failed(struct exec *e, int stage, int error);
void exec_ended(struct exec *e, int status, const struct rusage *usage, uint64_t at);
void exec_reaped(struct exec *e, int status, const struct rusage *usage);
void exec_drained(struct exec *e);
void exec_kill(struct exec *e, uint32_t grace, int cause);
void exec_signal(struct exec *e, int number, bool whole_tree);
void exec_release(struct exec *e);
void execs_link_lost(void);
void execs_bury(void);
void say(struct exec *e);  /* queue it: it has something for the host */
void unsay(struct exec *e);

/* ## Shepherds and children */

struct child_plan {
    const struct start *start;
    struct exec *exec;
    int in, out, err; /* what becomes 0, 1 and 2 */
};

struct report {
    uint32_t kind, pid;
    int32_t status, error;
    uint64_t at, user_us, system_us, max_rss;
};
enum report_kind { REPORT_STARTED = 1, REPORT_FAILED, REPORT_ENDED };

void oom_prepare(void);
pid_t fork_adjusted(void); /* fork, with the child first in line for the OOM killer */
_Noreturn void shepherd_main(const struct child_plan *plan, int report);
void shepherd_read(struct exec *e);
void close_from(unsigned first);
void child_stdio(const struct child_plan *plan, int keep);
int child_rights(const struct start *start, bool terminal, int *stage); /* errno */
int child_exec(const struct start *start);
extern struct rlimit files_limit; /* what commands get; our own is raised */

/* ## Streams */

bool watch_fd(struct source *s, uint32_t events);
void source_close(struct source *s);
bool pipe_pair(int ends[2], int ours); /* `ours` is the index of the end that must not block */
int dup_cloexec(int fd);
int terminal_open(const struct start *start, int *slave); /* master, or -1 with errno */
void streams_ready(struct exec *e);
bool streams_pump(void); /* true: some are not done */
void streams_drain(struct exec *e);
void streams_close(struct exec *e);
bool input_data(struct exec *e, const unsigned char *data, size_t size, bool last); /* false: violation */
void input_write(struct exec *e);

/* ## Trees */

struct pid_list { pid_t *pids; size_t count; };
bool tree_below(pid_t root, struct pid_list *list); /* living descendants; false without /proc */
int tree_signal(pid_t root, int number);            /* how many; -1 without /proc */
void orphans_sweep(void);
void shutdown_begin(uint32_t grace, int exit_code);
void shutdown_check(void); /* after reaping: exits when nobody is left */
extern bool shutting_down;

/* ## The link */

struct frame {
    uint32_t channel;
    uint8_t type, flags;
    unsigned char *payload;
    uint32_t size;
};

enum link_state { LINK_NONE, LINK_FIRST, LINK_DIALLED, LINK_OPEN };
struct link {
    struct source source;
    enum link_state state;
    bool readable, writable, hung_up, broken, adopted;
    uint32_t serial;
    unsigned char *in;
    size_t in_size, in_at, in_room;
    unsigned char *out;
    size_t out_size, out_at, out_room;
    unsigned char flight_head[HEADER + OUTPUT_HEAD];
    const unsigned char *flight;     /* an OUTPUT too big to copy; its head and data follow `out` */
    size_t flight_size, flight_done; /* both with the head */
    struct exec *flight_exec;
    struct exec *inventory;          /* the next one to list */
    bool inventory_due;
    struct exec *queue;              /* circular */
};
extern struct link host;

void link_open(int fd, enum link_state state);
void link_close(void);
bool link_violation(const char *why); /* closes the link; false, for `return` */
bool link_read(void);                 /* true: there is more */
void link_flush(void);
bool link_more(void);                 /* something can be written or taken now */
void link_detach(struct exec *e);     /* nothing of it may be pointed at any more */
unsigned char *link_frame(uint32_t channel, uint8_t type, size_t size);
bool request(const struct frame *f);  /* false: the link is closed */
void link_fill(void);                 /* turn what is due into frames */

void dial_set(const unsigned char *secret, const char *folder, size_t size);
bool dial_possible(void);
void dial_soon(void);
void dial_welcomed(void);
extern unsigned char boot_id[BOOT_ID_SIZE];

/* ## Builtins */
_Noreturn void builtin_main(const struct child_plan *plan);

extern int poller;
extern bool is_init;
extern struct source signals;

#endif
