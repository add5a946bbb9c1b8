/* Reading tar archives: ustar, pax and GNU long names (tar_read.c). */
#ifndef PADDOCK_TAR_H
#define PADDOCK_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TAR_BLOCK = 512, TAR_NAME = 4096 };
enum tar_type { TAR_FILE, TAR_FOLDER, TAR_SYMLINK, TAR_HARDLINK };

struct tar_entry {
    enum tar_type type;
    char name[TAR_NAME], target[TAR_NAME];
    uint32_t mode;
    int64_t size;
    int64_t mtime; /* ns */
};

/* Where the archive comes from: fills `data` whole and returns its size, or less at the end of input. */
typedef size_t tar_source(void *data, size_t size);

/* The next entry; false at the end of the archive. Its content has to be read before the next call: `size` bytes, then
 * padding to a whole block. Fails with EINVAL on anything that is not a whole archive of files, folders and links. */
bool tar_next(tar_source *source, struct tar_entry *entry);
int64_t tar_padding(int64_t size);

#endif
