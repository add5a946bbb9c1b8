/* Which channel numbers were used: the highest, and a bitmap of those just below it, since a host may send STARTs in
 * another order than it numbered them. */
#include "guest.h"

#include <string.h>

enum { REMEMBERED = sizeof marks.seen * 8 };

struct start_marks marks;

static uint64_t *word(uint32_t channel)
{
    return &marks.seen[channel % REMEMBERED / 64];
}

static uint64_t bit(uint32_t channel)
{
    return (uint64_t)1 << channel % 64;
}

bool channel_take(uint32_t channel)
{
    if (channel <= marks.top) {
        if (marks.top - channel >= REMEMBERED || *word(channel) & bit(channel))
            return false;
    } else if (channel - marks.top >= REMEMBERED) {
        memset(marks.seen, 0, sizeof marks.seen);
        marks.top = channel;
    } else {
        while (marks.top < channel) {
            marks.top++;
            *word(marks.top) &= ~bit(marks.top);
        }
    }
    *word(channel) |= bit(channel);
    return true;
}

bool channel_is_late(uint32_t channel)
{
    return channel <= marks.top;
}
