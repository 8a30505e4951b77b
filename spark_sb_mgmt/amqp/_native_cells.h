/* Cells: values on the wire, found and not decoded. What the compiled parts (_native*.c) have in common.
 *
 * The one rule: every read is preceded by a comparison with its end; what is not understood is told by 0 or -1, for the caller to step aside.
 *
 * AMQP 1.0 part 1, section 1.6 (constructors) and part 3, section 3.2 (sections).
 */
#ifndef NATIVE_CELLS_H
#define NATIVE_CELLS_H

#include <stdint.h>
#include <string.h>

/* As in lockstep.py: more items in one list or map are for the scalar decoder. */
#define MAX_ITEMS 128

enum {
    HEADER = 0x70, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES,
    DATA, AMQP_SEQUENCE, AMQP_VALUE, FOOTER
};

/* Where a value lies: its constructor, and the bytes after constructor and size. No constructor (-1): not there. */
typedef struct {
    int code;
    int64_t start, end;
} Cell;

static inline uint32_t u32_at(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t u64_at(const uint8_t *p) {
    return (uint64_t)u32_at(p) << 32 | u32_at(p + 4);
}

/* Bytes of a fixed-width value that is no list, -1 for every other constructor. */
static inline int fixed_width(int code) {
    switch (code) {
    case 0x40: case 0x41: case 0x42: case 0x43: case 0x44: return 0;
    case 0x50: case 0x51: case 0x52: case 0x53: case 0x54: case 0x55: case 0x56: return 1;
    case 0x60: case 0x61: return 2;
    case 0x70: case 0x71: case 0x72: case 0x73: case 0x74: return 4;
    case 0x80: case 0x81: case 0x82: case 0x83: case 0x84: return 8;
    case 0x94: case 0x98: return 16;
    default: return -1;
    }
}

static inline int is_text(int code) {
    return code == 0xA1 || code == 0xB1 || code == 0xA3 || code == 0xB3;
}

/* The value at `at`, which must be a scalar that ends by `end`. */
static inline int head(const uint8_t *b, int64_t at, int64_t end, Cell *cell) {
    if (at >= end) return 0;
    int code = b[at];
    int width = fixed_width(code);
    if (width >= 0) {
        cell->start = at + 1;
        cell->end = at + 1 + width;
        if (cell->end > end) return 0;
        if (code == 0x56 && b[at + 1] > 1) return 0;
    } else if (code == 0xA0 || code == 0xA1 || code == 0xA3) {
        if (at + 2 > end) return 0;
        cell->start = at + 2;
        cell->end = at + 2 + b[at + 1];
    } else if (code == 0xB0 || code == 0xB1 || code == 0xB3) {
        if (at + 5 > end) return 0;
        cell->start = at + 5;
        cell->end = at + 5 + (int64_t)u32_at(b + at + 1);
    } else {
        return 0;
    }
    cell->code = code;
    return cell->end <= end;
}

/* Count, start and stop of the items of a list (0xC0, 0xD0, 0x45) or map (0xC1, 0xD1). */
static inline int compound(const uint8_t *b, int64_t at, int64_t end, int narrow, int64_t *count, int64_t *start, int64_t *stop) {
    if (at >= end) return 0;
    int code = b[at];
    if (code == 0x45 && narrow == 0xC0) {
        *count = 0;
        *start = *stop = at + 1;
        return 1;
    }
    if (code == narrow) {
        if (at + 3 > end) return 0;
        *count = b[at + 2];
        *start = at + 3;
        *stop = at + 2 + b[at + 1];
    } else if (code == narrow + 0x10) {
        if (at + 9 > end) return 0;
        *count = u32_at(b + at + 5);
        *start = at + 9;
        *stop = at + 5 + (int64_t)u32_at(b + at + 1);
    } else {
        return 0;
    }
    return *stop <= end && *start <= *stop;
}

/* The same, if it is not too long. */
static inline int frame(const uint8_t *b, int64_t at, int64_t end, int narrow, int64_t *count, int64_t *start, int64_t *stop) {
    return compound(b, at, end, narrow, count, start, stop) && *count <= MAX_ITEMS;
}

static inline int64_t list_fields(const uint8_t *b, int64_t at, int64_t end, Cell **fields, int most) {
    int64_t count, start, stop;
    if (!frame(b, at, end, 0xC0, &count, &start, &stop) || count > most) return -1;
    for (int64_t i = 0; i < count; i++) {
        Cell cell;
        if (!head(b, start, stop, &cell)) return -1;
        if (fields[i]) *fields[i] = cell;
        start = cell.end;
    }
    return start == stop ? stop : -1;
}

static inline int same(const uint8_t *b, const Cell *key, const char *name, size_t length) {
    return (size_t)(key->end - key->start) == length && memcmp(b + key->start, name, length) == 0;
}

/* Whether no byte has its highest bit. Most texts are short: what is left behind whole words is looked at by a word that overlaps. */
static inline int is_ascii(const uint8_t *p, const uint8_t *end) {
    uint64_t seen = 0, word;
    if (end - p >= 8) {
        for (; end - p > 8; p += 8) {
            memcpy(&word, p, 8);
            seen |= word;
        }
        memcpy(&word, end - 8, 8);
        return !((seen | word) & 0x8080808080808080ULL);
    }
    for (; p < end; p++) seen |= *p;
    return !(seen & 0x80);
}

/* Valid UTF-8 by RFC 3629, as Python and Arrow have it: no surrogates, nothing overlong. */
static inline int is_utf8(const uint8_t *p, const uint8_t *end) {
    if (is_ascii(p, end)) return 1;
    while (p < end) {
        uint64_t word;
        while (end - p >= 8 && (memcpy(&word, p, 8), !(word & 0x8080808080808080ULL))) p += 8;
        if (p >= end) break;
        uint8_t c = *p;
        if (c < 0x80) {
            p++;
        } else if (c >= 0xC2 && c <= 0xDF) {
            if (end - p < 2 || (p[1] & 0xC0) != 0x80) return 0;
            p += 2;
        } else if (c >= 0xE0 && c <= 0xEF) {
            if (end - p < 3 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80) return 0;
            if ((c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F)) return 0;
            p += 3;
        } else if (c >= 0xF0 && c <= 0xF4) {
            if (end - p < 4 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80 || (p[3] & 0xC0) != 0x80) return 0;
            if ((c == 0xF0 && p[1] < 0x90) || (c == 0xF4 && p[1] > 0x8F)) return 0;
            p += 4;
        } else {
            return 0;
        }
    }
    return 1;
}

/* 1: an integer in range. 0: null, or a ulong beyond int64. -1: another type. */
static inline int integer(const uint8_t *b, const Cell *cell, int64_t *value) {
    const uint8_t *p = b + cell->start;
    switch (cell->code) {
    case 0x40: return 0;
    case 0x43: case 0x44: *value = 0; return 1;
    case 0x50: case 0x52: case 0x53: *value = p[0]; return 1;
    case 0x51: case 0x54: case 0x55: *value = (int8_t)p[0]; return 1;
    case 0x60: *value = (uint16_t)(p[0] << 8 | p[1]); return 1;
    case 0x61: *value = (int16_t)(p[0] << 8 | p[1]); return 1;
    case 0x70: case 0x73: *value = u32_at(p); return 1;
    case 0x71: *value = (int32_t)u32_at(p); return 1;
    case 0x81: case 0x83: *value = (int64_t)u64_at(p); return 1;
    case 0x80: *value = (int64_t)u64_at(p); return *value >= 0;
    default: return -1;
    }
}

#endif
