/* Feeds the guest's parsers what no honest host would send, under the sanitizers, with processes replaced by a model.
 *
 *   fuzz SEED ROUNDS frames   bytes on the link: well-formed frames, then damaged ones
 *   fuzz SEED ROUNDS model    a correct host, with links lost at any moment: every byte of output has to arrive once
 *   fuzz SEED ROUNDS tar      damaged archives
 *
 * The same seed does the same again. It leaves with 0, or dies where something is wrong. */
#include "fuzz.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

static uint64_t state;

uint64_t fuzz_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1d;
}

uint32_t below(uint32_t limit)
{
    return limit ? (uint32_t)(fuzz_random() >> 33) % limit : 0;
}

/* Mostly small, sometimes at an edge, sometimes anything. */
uint64_t odd_number(void)
{
    static const uint64_t edges[] = {0, 1, 4095, 4096, 65535, 65536, 262144, 262145, UINT32_MAX, INT64_MAX, UINT64_MAX};
    switch (below(4)) {
    case 0: return edges[below(sizeof edges / sizeof *edges)];
    case 1: return fuzz_random();
    default: return below(300);
    }
}

void damage(unsigned char *data, size_t size)
{
    for (uint32_t n = below(4); n && size; n--) {
        uint32_t at = below((uint32_t)size);
        switch (below(3)) {
        case 0: data[at] ^= (unsigned char)(1 << below(8)); break;
        case 1: data[at] = (unsigned char)odd_number(); break;
        default: memset(data + at, (int)below(256), size - at < 8 ? size - at : 8); break;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    state = strtoull(argv[1], NULL, 10) * 2654435761u + 88172645463325252u;
    long rounds = strtol(argv[2], NULL, 10);
    signal(SIGPIPE, SIG_IGN);
    poller = epoll_create1(EPOLL_CLOEXEC);
    for (long i = 0; i < rounds; i++) {
        if (!strcmp(argv[3], "frames"))
            fuzz_frames();
        else if (!strcmp(argv[3], "model"))
            fuzz_model();
        else
            fuzz_tar();
    }
    return 0;
}
