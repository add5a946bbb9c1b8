/* Damaged archives for the reader. What it returns must be usable; what it refuses, it refuses by fail(). */
#include "fuzz.h"

#include "../files.h"
#include "../tar.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char archive[65536];
static size_t size, at;
static jmp_buf refused;

void fail_with(int error, const char *path, const char *why)
{
    CHECK(error > 0 && strlen(path) < TAR_NAME * 2 && strlen(why) < 200);
    longjmp(refused, 1);
}

void fail(int error, const char *path)
{
    fail_with(error, path, "");
}

static size_t next_bytes(void *data, size_t wanted)
{
    size_t part = wanted < size - at ? wanted : size - at;
    memcpy(data, archive + at, part);
    at += part;
    return part;
}

static void add_header(const char *name, uint64_t content, char type)
{
    unsigned char *h = archive + size;
    unsigned sum = 0;
    memset(h, 0, TAR_BLOCK);
    snprintf((char *)h, 100, "%s", name);
    snprintf((char *)h + 100, 8, "%07o", below(010000));
    snprintf((char *)h + 124, 12, "%011llo", (unsigned long long)content & 077777777777);
    snprintf((char *)h + 136, 12, "%011o", below(1 << 30));
    h[156] = (unsigned char)type;
    snprintf((char *)h + 157, 100, "%s", below(2) ? "target" : "../target");
    memcpy(h + 257, "ustar\00000", 8);
    if (below(8) == 0) {
        h[124] = 0x80 | (unsigned char)below(128);
        h[124 + below(12)] = (unsigned char)below(256);
    }
    if (below(6) == 0)
        damage(h, TAR_BLOCK);
    memset(h + 148, ' ', 8);
    for (int i = 0; i < TAR_BLOCK; i++)
        sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
    size += TAR_BLOCK;
}

static void add_content(const char *text)
{
    size_t length = strlen(text);
    memset(archive + size, 0, TAR_BLOCK * 2);
    memcpy(archive + size, text, length);
    if (below(4) == 0)
        damage(archive + size, length);
    size += length + (size_t)tar_padding((int64_t)length);
}

static void add_entry(void)
{
    static const char *const records[] = {
        "21 path=some/where/x\n", "18 linkpath=other\n", "30 mtime=1350244992.023960108\n", "12 size=700\n",
        "9 size=1\n", "21 mtime=-5.25000000\n",
        "27 GNU.sparse.realsize=100\n", "8 a=b=c\n", "6 a=b\n", "5 a=b\n", "x", "99999999 path=x\n", "-5 a=b\n",
    };
    static const char types[] = "0125xgLK0x0x34675S";
    char type = types[below(sizeof types)];
    if (strchr("xgLK", type) && type) {
        const char *record = records[below(sizeof records / sizeof *records)];
        add_header("extension", strlen(record), type);
        add_content(record);
    } else {
        add_header(below(3) ? "folder/name" : "../name", below(3) ? 0 : odd_number() & 1023, type);
    }
}

void fuzz_tar(void)
{
    static struct tar_entry entry;
    size = at = 0;
    for (uint32_t n = 1 + below(6); n; n--)
        add_entry();
    memset(archive + size, 0, TAR_BLOCK * 2);
    size += below(4) ? TAR_BLOCK * 2 : below(TAR_BLOCK * 2);
    if (below(10) == 0)
        damage(archive, size);
    if (setjmp(refused))
        return;
    while (tar_next(next_bytes, &entry)) {
        CHECK(strlen(entry.name) < TAR_NAME && strlen(entry.target) < TAR_NAME && entry.size >= 0);
        CHECK(!(entry.mode & ~01777u) && entry.type <= TAR_HARDLINK);
        int64_t skip = entry.size + tar_padding(entry.size);
        CHECK(skip >= entry.size);
        at += skip > (int64_t)(size - at) ? size - at : (size_t)skip;
    }
}
