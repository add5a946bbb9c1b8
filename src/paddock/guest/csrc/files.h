/* What the file calls share. They run in a process of their own, so they may wait, keep memory and fail by leaving. */
#ifndef PADDOCK_FILES_H
#define PADDOCK_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* ## Text (json.c): lines for stdout or stderr, gathered and written whole */

struct text {
    int fd;
    size_t size;
    char bytes[16384];
};

extern struct text out; /* stdout */

void text_flush(struct text *t);
void text_add(struct text *t, const char *bytes, size_t size);
void text_put(struct text *t, const char *literal);
void text_number(struct text *t, int64_t number);
void text_string(struct text *t, const char *bytes); /* as a JSON string */
void text_entry(struct text *t, const char *name, const char *path, const struct stat *st, const char *target);

/* ## Failing (builtin.c): one line on stderr, errno as the exit code */

_Noreturn void fail(int error, const char *path);
_Noreturn void fail_with(int error, const char *path, const char *why);
extern void (*on_failure)(void); /* cleans up, when a call has something to clean */

/* ## Arguments */

bool flag_argument(const char *text);
int64_t number_argument(const char *text, int64_t least);
mode_t mode_argument(const char *text, mode_t otherwise); /* `-`: otherwise */

/* ## Paths and entries */

struct parent { int fd; char name[256]; }; /* a path as its folder and the name in it */
struct parent parent_open(const char *path);
const char *base_name(const char *path, char *room, size_t size);
char *join(const char *folder, const char *name); /* allocated */
void make_parents(const char *path);
void print_entry(struct text *t, int folder, const char *name, const char *shown, const char *path, bool follow);
void temporary_name(char *name, size_t size);
void write_all(int fd, const void *data, size_t size, const char *path);
void copy_rest(int from, int to, int64_t most, const char *path);
int64_t stat_mtime(const struct stat *st);
struct timespec from_ns(int64_t ns);
bool is_dots(const char *name);
void remove_tree(int folder, const char *name, const char *path);
void copy_tree(int from, const char *name, int to, const char *new_name, const char *path);

void call_stat(char **argv);
void call_list(char **argv);
void call_read(char **argv);
void call_write(char **argv);
void call_mkdir(char **argv);
void call_move(char **argv);
void call_remove(char **argv);
void call_watch(char **argv);
void call_pack(char **argv);
void call_unpack(char **argv);

#endif
