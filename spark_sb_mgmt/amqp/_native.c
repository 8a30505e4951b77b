/* The lock-step walk and the building of columns, compiled: the same job as lockstep.py and arrow_build.py, one message after the other.
 *
 * The one rule is theirs: be right or step aside. A message that is not known here to the last byte is marked slow, adds nothing to any
 * column, and is decoded by the scalar decoder. So there are no errors here, and every read is preceded by a comparison with its end.
 *
 * AMQP 1.0 part 1, section 1.6 (constructors) and part 3, section 3.2 (sections).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>

#include "_native_cells.h"

#define MAX_PAIRS (MAX_ITEMS / 2)

/* The fields that columns are made of. The order is that of the names given to Python (TEXTS, INTEGERS). */
enum {
    T_MESSAGE_ID, T_TO, T_SUBJECT, T_REPLY_TO, T_CORRELATION_ID, T_CONTENT_TYPE, T_GROUP_ID, T_REPLY_TO_GROUP_ID,
    T_PARTITION_KEY, T_VIA_PARTITION_KEY, T_DEADLETTER_SOURCE, T_REASON, T_DESCRIPTION, T_LOCK_TOKEN, TEXT_COUNT
};
enum {
    I_TTL, I_DELIVERY_COUNT, I_ABSOLUTE_EXPIRY_TIME, I_CREATION_TIME, I_SEQUENCE_NUMBER, I_ENQUEUE_SEQUENCE_NUMBER,
    I_ENQUEUED_TIME, I_SCHEDULED_ENQUEUE_TIME, I_LOCKED_UNTIL, I_MESSAGE_STATE, INTEGER_COUNT
};
static const char *const TEXT_NAMES[TEXT_COUNT] = {
    "message-id", "to", "subject", "reply-to", "correlation-id", "content-type", "group-id", "reply-to-group-id",
    "x-opt-partition-key", "x-opt-via-partition-key", "x-opt-deadletter-source", "DeadLetterReason", "DeadLetterErrorDescription",
    "x-opt-lock-token"
};
static const char *const INTEGER_NAMES[INTEGER_COUNT] = {
    "ttl", "delivery-count", "absolute-expiry-time", "creation-time", "x-opt-sequence-number", "x-opt-enqueue-sequence-number",
    "x-opt-enqueued-time", "x-opt-scheduled-enqueue-time", "x-opt-locked-until", "x-opt-message-state"
};

typedef struct {
    const uint8_t *bytes;
    Cell text[TEXT_COUNT];
    Cell integer[INTEGER_COUNT];
    Cell key[MAX_PAIRS], value[MAX_PAIRS];
    int pairs;            /* -1: no application-properties section */
    int body;             /* 0: none, else the section's code */
    int64_t body_start, body_end;
} Row;

/* Past a value of any kind by its size; -1 where it is cut off or unknown. */
static int64_t skip(const uint8_t *b, int64_t at, int64_t end) {
    if (at >= end) return -1;
    int code = b[at], width = code == 0x45 ? 0 : fixed_width(code);
    int64_t after;
    if (width >= 0) {
        after = at + 1 + width;
    } else {
        switch (code) {
        case 0xA0: case 0xA1: case 0xA3: case 0xC0: case 0xC1: case 0xE0:
            if (at + 2 > end) return -1;
            after = at + 2 + b[at + 1];
            break;
        case 0xB0: case 0xB1: case 0xB3: case 0xD0: case 0xD1: case 0xF0:
            if (at + 5 > end) return -1;
            after = at + 5 + (int64_t)u32_at(b + at + 1);
            break;
        default:
            return -1;
        }
    }
    return after <= end ? after : -1;
}

#define IS(name) same(b, key, name, sizeof(name) - 1)

/* The slot of a key that a column is made of. A key that comes again counts where it comes last. */
static Cell *slot(Row *row, int section, const Cell *key) {
    const uint8_t *b = row->bytes;
    if (section == DELIVERY_ANNOTATIONS) return IS("x-opt-lock-token") ? &row->text[T_LOCK_TOKEN] : NULL;
    if (section == APPLICATION_PROPERTIES) {
        if (IS("DeadLetterReason")) return &row->text[T_REASON];
        return IS("DeadLetterErrorDescription") ? &row->text[T_DESCRIPTION] : NULL;
    }
    if (IS("x-opt-sequence-number")) return &row->integer[I_SEQUENCE_NUMBER];
    if (IS("x-opt-enqueued-time")) return &row->integer[I_ENQUEUED_TIME];
    if (IS("x-opt-message-state")) return &row->integer[I_MESSAGE_STATE];
    if (IS("x-opt-enqueue-sequence-number")) return &row->integer[I_ENQUEUE_SEQUENCE_NUMBER];
    if (IS("x-opt-locked-until")) return &row->integer[I_LOCKED_UNTIL];
    if (IS("x-opt-scheduled-enqueue-time")) return &row->integer[I_SCHEDULED_ENQUEUE_TIME];
    if (IS("x-opt-partition-key")) return &row->text[T_PARTITION_KEY];
    if (IS("x-opt-via-partition-key")) return &row->text[T_VIA_PARTITION_KEY];
    return IS("x-opt-deadletter-source") ? &row->text[T_DEADLETTER_SOURCE] : NULL;
}

static int64_t map_pairs(Row *row, int section, int64_t at, int64_t end) {
    const uint8_t *b = row->bytes;
    int64_t count, start, stop;
    if (!frame(b, at, end, 0xC1, &count, &start, &stop) || count % 2) return -1;
    for (int64_t i = 0; i < count / 2; i++) {
        Cell key, value;
        if (!head(b, start, stop, &key) || !is_text(key.code) || !head(b, key.end, stop, &value)) return -1;
        Cell *place = slot(row, section, &key);
        if (place) *place = value;
        if (section == APPLICATION_PROPERTIES) {
            row->key[i] = key;
            row->value[i] = value;
        }
        start = value.end;
    }
    if (section == APPLICATION_PROPERTIES) row->pairs = (int)(count / 2);
    return start == stop ? stop : -1;
}

/* Finds every wanted field of one message; 0 where the scalar decoder has to look. */
static int find(Row *row, int64_t at, int64_t end, unsigned wanted) {
    const uint8_t *b = row->bytes;
    for (int i = 0; i < TEXT_COUNT; i++) row->text[i].code = -1;
    for (int i = 0; i < INTEGER_COUNT; i++) row->integer[i].code = -1;
    row->pairs = -1;
    row->body = 0;
    Cell *header[5] = {NULL, NULL, &row->integer[I_TTL], NULL, &row->integer[I_DELIVERY_COUNT]};
    Cell *properties[13] = {
        &row->text[T_MESSAGE_ID], NULL, &row->text[T_TO], &row->text[T_SUBJECT], &row->text[T_REPLY_TO], &row->text[T_CORRELATION_ID],
        &row->text[T_CONTENT_TYPE], NULL, &row->integer[I_ABSOLUTE_EXPIRY_TIME], &row->integer[I_CREATION_TIME], &row->text[T_GROUP_ID],
        NULL, &row->text[T_REPLY_TO_GROUP_ID]
    };
    int last = 0;
    while (at < end) {
        if (at + 3 > end || b[at] != 0x00 || b[at + 1] != 0x53) return 0;
        int section = b[at + 2];
        /* In the specification's order, each once, one body section: all else is for the scalar decoder. */
        if (section < HEADER || section > FOOTER || section <= last) return 0;
        if (section >= DATA && section <= AMQP_VALUE && last >= DATA) return 0;
        last = section;
        at += 3;
        Cell cell;
        if (!(wanted >> (section - HEADER) & 1)) {
            at = skip(b, at, end);
        } else if (section == HEADER) {
            at = list_fields(b, at, end, header, 5);
        } else if (section == PROPERTIES) {
            at = list_fields(b, at, end, properties, 13);
        } else if (section == DATA) {
            if (!head(b, at, end, &cell) || (cell.code != 0xA0 && cell.code != 0xB0)) return 0;
            row->body = section;
            row->body_start = cell.start;
            at = row->body_end = cell.end;
        } else if (section == AMQP_VALUE) {
            if (!head(b, at, end, &cell)) return 0;
            int64_t length = cell.end - cell.start;
            int code = cell.code;
            /* The column shows the canonical encoding: the bytes as they stand are that only for these. */
            if (!(code == 0x40 || code == 0x41 || code == 0x42 || code == 0xA0 || code == 0xA1 ||
                  ((code == 0xB0 || code == 0xB1) && length >= 256))) return 0;
            row->body = section;
            row->body_start = at;
            at = row->body_end = cell.end;
        } else if (section == AMQP_SEQUENCE || section == FOOTER) {
            return 0;
        } else {
            at = map_pairs(row, section, at, end);
        }
        if (at < 0) return 0;
    }
    return 1;
}

/* Values to text and numbers */

static double double_at(const uint8_t *p) {
    uint64_t bits = u64_at(p);
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

#define FIRST_MS (-62135596800000LL)
#define LAST_MS 253402300799999LL

/* Whether this file knows the text of a value; the rest (binary, float, char, decimals, broken UTF-8) is for the scalar decoder. */
static int shows(const uint8_t *b, const Cell *cell) {
    int64_t number;
    switch (cell->code) {
    case 0x40: case 0x41: case 0x42: case 0x56: case 0x98: return 1;
    case 0x80: return integer(b, cell, &number) == 1;
    case 0x82: return isfinite(double_at(b + cell->start));
    case 0x83: integer(b, cell, &number); return number >= FIRST_MS && number <= LAST_MS;
    case 0x73: return 0;
    default: return is_text(cell->code) ? is_utf8(b + cell->start, b + cell->end) : integer(b, cell, &number) == 1;
    }
}

/* A column of texts or bytes under way: Arrow's validity bits, 32-bit offsets and data. */
typedef struct {
    uint8_t *valid;
    int32_t *offsets;
    char *data;
    Py_ssize_t rows, room, size, space;
} Texts;

static int texts_open(Texts *t, Py_ssize_t rows, Py_ssize_t space) {
    t->rows = 0;
    t->room = rows;
    t->size = 0;
    t->space = space;
    t->valid = PyMem_Calloc((size_t)rows / 8 + 1, 1);
    t->offsets = PyMem_Calloc((size_t)rows + 1, sizeof(int32_t));
    t->data = PyMem_Malloc((size_t)space + 1);
    return t->valid && t->offsets && t->data;
}

static void texts_close(Texts *t) {
    PyMem_Free(t->valid);
    PyMem_Free(t->offsets);
    PyMem_Free(t->data);
}

/* Room for one more row; columns of pairs have more rows than there are messages. */
static int texts_row(Texts *t) {
    if (t->rows < t->room) return 1;
    Py_ssize_t room = t->room * 2 + 64;
    uint8_t *valid = PyMem_Realloc(t->valid, (size_t)room / 8 + 1);
    if (!valid) return 0;
    t->valid = valid;
    memset(valid + t->room / 8 + 1, 0, (size_t)(room / 8 - t->room / 8));
    int32_t *offsets = PyMem_Realloc(t->offsets, ((size_t)room + 1) * sizeof(int32_t));
    if (!offsets) return 0;
    t->offsets = offsets;
    t->room = room;
    return 1;
}

static int texts_null(Texts *t) {
    if (!texts_row(t)) return 0;
    t->offsets[++t->rows] = (int32_t)t->size;
    return 1;
}

/* As memcpy. Most texts are short, and the call would take longer than the copy: both ends, which may overlap. */
static inline void copy(char *to, const void *bytes, size_t length) {
    const char *from = bytes;
    if (length > 32) {
        memcpy(to, from, length);
    } else if (length >= 16) {
        memcpy(to, from, 16);
        memcpy(to + length - 16, from + length - 16, 16);
    } else if (length >= 8) {
        memcpy(to, from, 8);
        memcpy(to + length - 8, from + length - 8, 8);
    } else if (length >= 4) {
        memcpy(to, from, 4);
        memcpy(to + length - 4, from + length - 4, 4);
    } else {
        for (size_t i = 0; i < length; i++) to[i] = from[i];
    }
}

static int texts_add(Texts *t, const void *bytes, Py_ssize_t length) {
    if (!texts_row(t)) return 0;
    if (t->size + length > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a column is larger than Arrow's 32-bit offsets reach: give fewer responses at once");
        return 0;
    }
    if (t->size + length > t->space) {
        Py_ssize_t space = (t->size + length) * 2 + 1024;
        char *data = PyMem_Realloc(t->data, (size_t)space);
        if (!data) return 0;
        t->data = data;
        t->space = space;
    }
    copy(t->data + t->size, bytes, (size_t)length);
    t->size += length;
    t->valid[t->rows >> 3] |= (uint8_t)(1 << (t->rows & 7));
    t->offsets[++t->rows] = (int32_t)t->size;
    return 1;
}

static char *digits(char *end, uint64_t number, int least) {
    do {
        *--end = (char)('0' + number % 10);
        number /= 10;
        least--;
    } while (number || least > 0);
    return end;
}

/* 2024-05-01T12:00:00.000Z; the days by the usual shift of the year to March. */
static int add_timestamp(Texts *t, int64_t milliseconds) {
    int64_t day = milliseconds / 86400000, rest = milliseconds % 86400000;
    if (rest < 0) {
        rest += 86400000;
        day--;
    }
    day += 719468;
    int64_t era = (day >= 0 ? day : day - 146096) / 146097;
    int64_t of_era = day - era * 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    int64_t month = (5 * of_year + 2) / 153;
    int64_t date = of_year - (153 * month + 2) / 5 + 1;
    month += month < 10 ? 3 : -9;
    year += era * 400 + (month <= 2);
    char text[25] = "0000-00-00T00:00:00.000Z";
    digits(text + 4, (uint64_t)year, 4);
    digits(text + 7, (uint64_t)month, 2);
    digits(text + 10, (uint64_t)date, 2);
    digits(text + 13, (uint64_t)(rest / 3600000), 2);
    digits(text + 16, (uint64_t)(rest / 60000 % 60), 2);
    digits(text + 19, (uint64_t)(rest / 1000 % 60), 2);
    digits(text + 23, (uint64_t)(rest % 1000), 3);
    return texts_add(t, text, 24);
}

static int add_uuid(Texts *t, const uint8_t *p) {
    static const char HEX[] = "0123456789abcdef";
    char text[36], *out = text;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) *out++ = '-';
        *out++ = HEX[p[i] >> 4];
        *out++ = HEX[p[i] & 15];
    }
    return texts_add(t, text, 36);
}

/* A value that `shows`, as typed_text.to_text shows it. */
static int add_shown(Texts *t, const uint8_t *b, const Cell *cell) {
    int64_t number = 0;
    switch (cell->code) {
    case -1: case 0x40: return texts_null(t);
    case 0x41: return texts_add(t, "true", 4);
    case 0x42: return texts_add(t, "false", 5);
    case 0x56: return b[cell->start] ? texts_add(t, "true", 4) : texts_add(t, "false", 5);
    case 0x98: return add_uuid(t, b + cell->start);
    case 0x83: integer(b, cell, &number); return add_timestamp(t, number);
    case 0x82: {
        char *text = PyOS_double_to_string(double_at(b + cell->start), 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
        if (!text) return 0;
        int done = texts_add(t, text, (Py_ssize_t)strlen(text));
        PyMem_Free(text);
        return done;
    }
    default:
        if (is_text(cell->code)) return texts_add(t, b + cell->start, (Py_ssize_t)(cell->end - cell->start));
        integer(b, cell, &number);
        char text[24], *start = digits(text + 24, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, 1);
        if (number < 0) *--start = '-';
        return texts_add(t, start, text + 24 - start);
    }
}

static PyObject *texts_result(const Texts *t) {
    return Py_BuildValue(
        "ny#y#y#", t->rows, (const char *)t->valid, t->rows / 8 + 1, (const char *)t->offsets,
        (Py_ssize_t)((t->rows + 1) * (Py_ssize_t)sizeof(int32_t)), t->data, t->size);
}

/* The columns of many messages */

typedef struct {
    Py_buffer buffer, start, end;
    Py_ssize_t count;
    unsigned sections, texts, integers;
    int map, body;
    uint8_t *slow;
    int64_t *numbers;
    uint8_t *number_valid;
    Texts text[TEXT_COUNT], keys, values;
    /* Bodies are most of the bytes: they are copied once, into a buffer of Arrow's own with room for all of them. */
    Py_buffer bodies;
    Py_ssize_t bodies_size;
    int32_t *body_offsets;
    int32_t *map_offsets;
    uint8_t *map_valid;
    uint8_t *body_section;
} Job;

static int emit(Job *job, Py_ssize_t index, const Row *row) {
    const uint8_t *b = row->bytes;
    for (int i = 0; i < INTEGER_COUNT; i++) {
        if (!(job->integers >> i & 1) || row->integer[i].code < 0) continue;
        int64_t number = 0;
        if (integer(b, &row->integer[i], &number) == 1) {
            job->numbers[i * job->count + index] = number;
            job->number_valid[i * job->count + index] = 1;
        }
    }
    for (int i = 0; i < TEXT_COUNT; i++)
        if ((job->texts >> i & 1) && !add_shown(&job->text[i], b, &row->text[i])) return 0;
    if (job->map) {
        for (int i = 0; i < row->pairs; i++)
            if (!add_shown(&job->keys, b, &row->key[i]) || !add_shown(&job->values, b, &row->value[i])) return 0;
        if (row->pairs >= 0) job->map_valid[index >> 3] |= (uint8_t)(1 << (index & 7));
        job->map_offsets[index + 1] = (int32_t)job->keys.rows;
    }
    if (job->body) {
        job->body_section[index] = (uint8_t)row->body;
        if (row->body) {
            size_t length = (size_t)(row->body_end - row->body_start);
            if (length > (size_t)(job->bodies.len - job->bodies_size)) {
                PyErr_SetString(PyExc_ValueError, "the buffer for the bodies is too small");
                return 0;
            }
            memcpy((char *)job->bodies.buf + job->bodies_size, b + row->body_start, length);
            job->bodies_size += (Py_ssize_t)length;
        }
        job->body_offsets[index + 1] = (int32_t)job->bodies_size;
    }
    return 1;
}

/* Whether every wanted value of the row can be emitted. */
static int emits(const Job *job, const Row *row) {
    int64_t number;
    for (int i = 0; i < INTEGER_COUNT; i++)
        if ((job->integers >> i & 1) && row->integer[i].code >= 0 && integer(row->bytes, &row->integer[i], &number) < 0) return 0;
    for (int i = 0; i < TEXT_COUNT; i++)
        if ((job->texts >> i & 1) && row->text[i].code >= 0 && !shows(row->bytes, &row->text[i])) return 0;
    if (job->map)
        for (int i = 0; i < row->pairs; i++)
            if (!shows(row->bytes, &row->key[i]) || !shows(row->bytes, &row->value[i])) return 0;
    return 1;
}

static int run(Job *job) {
    const uint8_t *bytes = job->buffer.buf;
    const int64_t *start = job->start.buf, *end = job->end.buf;
    Row row, none;
    none.bytes = row.bytes = bytes;
    find(&none, 0, 0, 0);
    for (Py_ssize_t i = 0; i < job->count; i++) {
        if (start[i] < 0 || start[i] > end[i] || end[i] > job->buffer.len) {
            PyErr_SetString(PyExc_ValueError, "a message lies outside the buffer");
            return 0;
        }
        int known = find(&row, start[i], end[i], job->sections) && emits(job, &row);
        job->slow[i] = (uint8_t)!known;
        if (!emit(job, i, known ? &row : &none)) {
            if (!PyErr_Occurred()) PyErr_NoMemory();
            return 0;
        }
    }
    return 1;
}

static int job_open(Job *job) {
    size_t count = (size_t)job->count;
    job->slow = PyMem_Calloc(count + 1, 1);
    job->numbers = PyMem_Calloc(count * INTEGER_COUNT + 1, sizeof(int64_t));
    job->number_valid = PyMem_Calloc(count * INTEGER_COUNT + 1, 1);
    job->map_offsets = PyMem_Calloc(count + 1, sizeof(int32_t));
    job->map_valid = PyMem_Calloc(count / 8 + 1, 1);
    job->body_section = PyMem_Calloc(count + 1, 1);
    int ready = job->slow && job->numbers && job->number_valid && job->map_offsets && job->map_valid && job->body_section;
    for (int i = 0; ready && i < TEXT_COUNT; i++)
        if (job->texts >> i & 1) ready = texts_open(&job->text[i], job->count, job->count * 16);
    if (ready && job->map) {
        ready = texts_open(&job->keys, job->count * 4, job->count * 32);
        if (ready) ready = texts_open(&job->values, job->count * 4, job->count * 32);
    }
    if (ready && job->body) {
        job->body_offsets = PyMem_Calloc(count + 1, sizeof(int32_t));
        ready = job->body_offsets != NULL;
    }
    return ready;
}

static void job_close(Job *job) {
    for (int i = 0; i < TEXT_COUNT; i++) texts_close(&job->text[i]);
    texts_close(&job->keys);
    texts_close(&job->values);
    PyMem_Free(job->body_offsets);
    if (job->bodies.obj) PyBuffer_Release(&job->bodies);
    PyMem_Free(job->slow);
    PyMem_Free(job->numbers);
    PyMem_Free(job->number_valid);
    PyMem_Free(job->map_offsets);
    PyMem_Free(job->map_valid);
    PyMem_Free(job->body_section);
    if (job->buffer.obj) PyBuffer_Release(&job->buffer);
    if (job->start.obj) PyBuffer_Release(&job->start);
    if (job->end.obj) PyBuffer_Release(&job->end);
}

static PyObject *job_result(Job *job) {
    Py_ssize_t count = job->count;
    PyObject *texts = PyDict_New();
    if (!texts) return NULL;
    for (int i = 0; i < TEXT_COUNT; i++) {
        if (!(job->texts >> i & 1)) continue;
        PyObject *column = texts_result(&job->text[i]);
        if (!column || PyDict_SetItemString(texts, TEXT_NAMES[i], column) < 0) {
            Py_XDECREF(column);
            Py_DECREF(texts);
            return NULL;
        }
        Py_DECREF(column);
    }
    PyObject *integers = Py_BuildValue(
        "y#y#", (const char *)job->numbers, count * INTEGER_COUNT * (Py_ssize_t)sizeof(int64_t), (const char *)job->number_valid,
        count * INTEGER_COUNT);
    PyObject *map = Py_NewRef(Py_None), *body = Py_NewRef(Py_None);
    if (job->map) {
        PyObject *keys = texts_result(&job->keys), *values = texts_result(&job->values);
        Py_DECREF(map);
        map = keys && values ? Py_BuildValue(
            "y#y#OO", (const char *)job->map_valid, count / 8 + 1, (const char *)job->map_offsets,
            (count + 1) * (Py_ssize_t)sizeof(int32_t), keys, values) : NULL;
        Py_XDECREF(keys);
        Py_XDECREF(values);
    }
    if (job->body) {
        Py_DECREF(body);
        body = Py_BuildValue(
            "y#y#n", (const char *)job->body_section, count, (const char *)job->body_offsets,
            (count + 1) * (Py_ssize_t)sizeof(int32_t), job->bodies_size);
    }
    PyObject *result = NULL;
    if (integers && map && body)
        result = Py_BuildValue("y#OOOO", (const char *)job->slow, count, integers, texts, map, body);
    Py_XDECREF(integers);
    Py_XDECREF(map);
    Py_XDECREF(body);
    Py_DECREF(texts);
    return result;
}

static PyObject *decode(PyObject *self, PyObject *args) {
    (void)self;
    Job job;
    memset(&job, 0, sizeof job);
    PyObject *bodies;
    if (!PyArg_ParseTuple(args, "y*y*y*IIIpO", &job.buffer, &job.start, &job.end, &job.sections, &job.texts, &job.integers, &job.map,
                          &bodies))
        return NULL;
    job.body = bodies != Py_None;
    if (job.body && PyObject_GetBuffer(bodies, &job.bodies, PyBUF_WRITABLE) < 0) {
        job_close(&job);
        return NULL;
    }
    job.count = job.start.len / (Py_ssize_t)sizeof(int64_t);
    PyObject *result = NULL;
    if (job.end.len != job.start.len || job.start.len % (Py_ssize_t)sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "start and end must be as many 64-bit numbers");
    } else if (job.buffer.len > INT32_MAX || job.bodies.len > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the buffer is larger than Arrow's 32-bit offsets reach");
    } else if (!job_open(&job)) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
    } else if (run(&job)) {
        result = job_result(&job);
    }
    job_close(&job);
    return result;
}

/* The places of the entries of a messages list, each a map32; None where one is not, or they do not fill the list. */
static PyObject *entries(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer response;
    Py_ssize_t at, stop, count;
    if (!PyArg_ParseTuple(args, "y*nnn", &response, &at, &stop, &count)) return NULL;
    const uint8_t *b = response.buf;
    PyObject *result = NULL;
    if (at >= 0 && stop <= response.len && count >= 0 && count <= stop - at)
        result = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int64_t));
    if (result) {
        int64_t *bounds = (int64_t *)PyBytes_AS_STRING(result);
        Py_ssize_t i = 0;
        for (; i < count && at + 5 <= stop && b[at] == 0xD1; i++) {
            bounds[i] = at;
            at += 5 + (Py_ssize_t)u32_at(b + at + 1);
        }
        bounds[i] = stop;
        if (i < count || at != stop) Py_CLEAR(result);
    }
    PyBuffer_Release(&response);
    if (result || PyErr_Occurred()) return result;
    Py_RETURN_NONE;
}

/* The x-opt-sequence-number of each entry between `bounds`; None where an entry is more than its message, or one has no such number. */
static PyObject *sequence_numbers(PyObject *self, PyObject *args) {
    (void)self;
    static const uint8_t plain[] = {0, 0, 0, 2, 0xA1, 7, 'm', 'e', 's', 's', 'a', 'g', 'e', 0xB0};
    Py_buffer response, bounds;
    if (!PyArg_ParseTuple(args, "y*y*", &response, &bounds)) return NULL;
    const uint8_t *b = response.buf;
    const int64_t *bound = bounds.buf;
    const Py_ssize_t count = bounds.len / (Py_ssize_t)sizeof(int64_t) - 1;
    PyObject *result = count >= 0 ? PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t)) : NULL;
    if (result) {
        int64_t *numbers = (int64_t *)PyBytes_AS_STRING(result);
        Row row;
        row.bytes = b;
        Py_ssize_t i = 0;
        for (; i < count; i++) {
            const int64_t start = bound[i], end = bound[i + 1];
            /* map32, its size, then the pair; the message fills what is left. */
            if (start < 0 || end > response.len || end - start < 23 || b[start] != 0xD1) break;
            if (memcmp(b + start + 5, plain, sizeof plain) || start + 23 + (int64_t)u32_at(b + start + 19) != end) break;
            if (!find(&row, start + 23, end, 1u << (MESSAGE_ANNOTATIONS - HEADER))) break;
            const Cell *cell = &row.integer[I_SEQUENCE_NUMBER];
            if (cell->code < 0 || integer(b, cell, &numbers[i]) != 1) break;
        }
        if (i < count) Py_CLEAR(result);
    }
    PyBuffer_Release(&response);
    PyBuffer_Release(&bounds);
    if (result || PyErr_Occurred()) return result;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"sequence_numbers", sequence_numbers, METH_VARARGS,
     "sequence_numbers(response, bounds): the x-opt-sequence-number of each entry between bounds, as 64-bit numbers; or None."},
    {"entries", entries, METH_VARARGS,
     "entries(response, at, stop, count): where the entries of a messages list start, and last where it ends, as 64-bit numbers; or None."},
    {"decode", decode, METH_VARARGS,
     "decode(buffer, start, end, sections, texts, integers, map, bodies): the columns of the messages that lie in buffer from start to end.\n"
     "sections, texts and integers are sets of bits: section code - 0x70, index in TEXTS, index in INTEGERS; bodies is a\n"
     "writable buffer with room for all bodies, or None where nobody asked for them."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", "Compiled column decoder; see native.py.", -1, methods, NULL, NULL, NULL, NULL};

static PyObject *names(const char *const *from, int count) {
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *name = PyUnicode_FromString(from[i]);
        if (!name) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, name);
    }
    return tuple;
}

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    PyObject *texts = names(TEXT_NAMES, TEXT_COUNT), *integers = names(INTEGER_NAMES, INTEGER_COUNT);
    if (!texts || !integers || PyModule_AddObjectRef(module, "TEXTS", texts) < 0 || PyModule_AddObjectRef(module, "INTEGERS", integers) < 0)
        Py_CLEAR(module);
    Py_XDECREF(texts);
    Py_XDECREF(integers);
    return module;
}
