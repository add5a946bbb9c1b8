#ifndef PADDOCK_FUZZ_H
#define PADDOCK_FUZZ_H

#include "../bytes.h"
#include "../guest.h"

uint64_t fuzz_random(void);
uint32_t below(uint32_t limit);
uint64_t odd_number(void);
void damage(unsigned char *data, size_t size);

void fuzz_frames(void);
void fuzz_model(void);
void fuzz_tar(void);

/* stage.c: the guest without processes */
int stage_open(enum link_state how);   /* a new link; our end of it */
void stage_clear(void);                /* forget every exec, link and mark */
void stage_step(void);                 /* one round of the guest's loop */
void stage_write(struct exec *e, int stream, size_t size); /* the process writes what stage_byte says */
void stage_end(struct exec *e);        /* the process ends, or goes on to end */
unsigned char stage_byte(uint32_t channel, uint64_t position);
struct exec *stage_pick(void);         /* any exec, or NULL */
size_t stage_start(unsigned char *payload, uint32_t flags, uint32_t window);

#define CHECK(condition) do { if (!(condition)) stage_fail(#condition, __FILE__, __LINE__); } while (0)
_Noreturn void stage_fail(const char *what, const char *file, int line);

#endif
