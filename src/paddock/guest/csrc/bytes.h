/* Little-endian numbers at any alignment. */
#ifndef PADDOCK_BYTES_H
#define PADDOCK_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t get16(const void *at) { uint16_t v; memcpy(&v, at, 2); return le16toh(v); }
static inline uint32_t get32(const void *at) { uint32_t v; memcpy(&v, at, 4); return le32toh(v); }
static inline uint64_t get64(const void *at) { uint64_t v; memcpy(&v, at, 8); return le64toh(v); }
static inline void put16(void *at, uint16_t v) { v = htole16(v); memcpy(at, &v, 2); }
static inline void put32(void *at, uint32_t v) { v = htole32(v); memcpy(at, &v, 4); }
static inline void put64(void *at, uint64_t v) { v = htole64(v); memcpy(at, &v, 8); }

#endif
