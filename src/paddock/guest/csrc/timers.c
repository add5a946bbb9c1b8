/* Timers: a binary heap by due time. Slots count from 1. */
#include "guest.h"

#include <stdlib.h>
#include <time.h>

static struct timer **heap;
static unsigned count, room;

uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void place(struct timer *t, unsigned slot)
{
    heap[slot] = t;
    t->slot = slot;
}

static void settle(struct timer *t, unsigned slot)
{
    while (slot > 1 && heap[slot / 2]->due > t->due) {
        place(heap[slot / 2], slot);
        slot /= 2;
    }
    for (;;) {
        unsigned child = slot * 2;
        if (child > count)
            break;
        if (child < count && heap[child + 1]->due < heap[child]->due)
            child++;
        if (heap[child]->due >= t->due)
            break;
        place(heap[child], slot);
        slot = child;
    }
    place(t, slot);
}

void timer_cancel(struct timer *t)
{
    unsigned slot = t->slot;
    if (!slot)
        return;
    struct timer *last = heap[count--];
    t->slot = 0;
    if (last != t)
        settle(last, slot);
}

void timer_set(struct timer *t, uint64_t in_ms, void (*fire)(struct timer *))
{
    timer_cancel(t);
    if (count + 2 > room) {
        unsigned more = room ? room * 2 : 32;
        struct timer **grown = realloc(heap, more * sizeof *heap);
        if (!grown)
            abort(); /* a timeout that cannot be kept must not be forgotten in silence */
        heap = grown;
        room = more;
    }
    t->due = now_ms() + in_ms;
    t->fire = fire;
    count++;
    settle(t, count);
}

void timers_run(void)
{
    if (!count)
        return;
    uint64_t now = now_ms();
    while (count && heap[1]->due <= now) {
        struct timer *t = heap[1];
        timer_cancel(t);
        t->fire(t);
    }
}

int timers_wait(void)
{
    if (!count)
        return -1;
    uint64_t now = now_ms(), due = heap[1]->due;
    if (due <= now)
        return 0;
    return due - now > 60000 ? 60000 : (int)(due - now);
}
