/* Where links come from. The first is inherited; an adopted guest that loses its link dials `guest.sock` in the
 * folder that BOOT named, until somebody who knows the secret answers. */
#include "bytes.h"
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_PAUSE = 50, LAST_PAUSE = 1000, ANSWER_MS = 10000 };

unsigned char boot_id[BOOT_ID_SIZE];

/* A page of its own, which fork leaves empty in the child and no dump contains. */
static unsigned char *secret;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static struct timer timer;
static uint32_t pause_ms = FIRST_PAUSE;

void dial_set(const unsigned char *bytes, const char *folder, size_t size)
{
    secret = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (secret == MAP_FAILED || madvise(secret, 4096, MADV_WIPEONFORK) || madvise(secret, 4096, MADV_DONTDUMP)) {
        _exit(1);
    }
    memcpy(secret, bytes, SECRET_SIZE);
    if (size)
        snprintf(address.sun_path, sizeof address.sun_path, "%.*s/guest.sock", (int)size, folder);
}

bool dial_possible(void)
{
    return address.sun_path[0] != 0;
}

/* Code beside us must not get the secret by putting its own socket in the place: seen from PID 1, the server's
 * process is outside and has no number here. */
static bool peer_is_outside(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (!is_init)
        return true;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.pid == 0;
}

static void give_up(struct timer *t)
{
    (void)t;
    link_close();
}

static void dial(struct timer *t)
{
    (void)t;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) || !peer_is_outside(fd)) {
        if (fd >= 0)
            close(fd);
        dial_soon();
        return;
    }
    link_open(fd, LINK_DIALLED);
    if (host.state != LINK_DIALLED)
        return;
    unsigned char *p = link_frame(0, DIAL, 4 + SECRET_SIZE + BOOT_ID_SIZE + 4);
    put16(p, VERSION);
    put16(p + 2, 0);
    memcpy(p + 4, secret, SECRET_SIZE);
    memcpy(p + 4 + SECRET_SIZE, boot_id, BOOT_ID_SIZE);
    put32(p + 4 + SECRET_SIZE + BOOT_ID_SIZE, marks.top + 1);
    timer_set(&timer, ANSWER_MS, give_up);
}

void dial_soon(void)
{
    timer_set(&timer, pause_ms, dial);
    pause_ms = pause_ms * 2 > LAST_PAUSE ? LAST_PAUSE : pause_ms * 2;
}

void dial_welcomed(void)
{
    timer_cancel(&timer);
    pause_ms = FIRST_PAUSE;
    host.state = LINK_OPEN;
    host.inventory = execs;
    host.inventory_due = true;
}
