/* Plain rows to the entries of schedule-message requests, compiled: the same bytes as arrow_encode.py and operations/schedule.py make.
 *
 * The one rule is theirs of _native.c: be right or step aside. Where one row of a batch is not known here (text that is not UTF-8, an id
 * that is too long, a buffer that is shorter than it must be) the answer is None, and Python encodes the whole batch, or says what is wrong
 * with which row. So there are no errors here.
 *
 * Each row is gone through twice: measured, when all of it is checked too, and written. An entry is the map of operations/schedule.py, its
 * message the sections of arrow_encode.py: message-annotations, properties, application-properties, data.
 *
 * AMQP 1.0 part 1, section 1.6 (constructors) and part 3, section 3.2 (sections).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define MAX_COLUMNS 64
/* Offsets of Arrow have 31 bits, and so does all that is made of a batch. */
#define MAX_TOTAL INT32_MAX

enum { MESSAGE_ANNOTATIONS = 0x72, PROPERTIES = 0x73, APPLICATION_PROPERTIES = 0x74, DATA = 0x75 };

/* How a column is written: by the constructor of its values, the shortest where there are several. The last is none of AMQP: a string of
 * a prefix that all rows have, and a number. */
enum { BOOLEAN = 0x56, INT = 0x71, LONG = 0x81, DOUBLE = 0x82, TIMESTAMP = 0x83, BINARY = 0xA0, STRING = 0xA1, SYMBOL = 0xA3, NUMBERED = 0 };

/* An Arrow column: `offset` is that of all its buffers. Of a numbered one the prefix stands where texts have their offsets. */
typedef struct {
    int kind;
    int64_t offset;
    Py_buffer key, valid, offsets, data;
} Column;

typedef struct {
    int count;
    Column column[MAX_COLUMNS];
} Columns;

/* The application_properties of the rows: a map column, its keys and values as columns of all entries there are. */
typedef struct {
    int64_t offset, entries;
    Py_buffer valid, offsets;
    Columns pair; /* none, or key and value */
} MapColumn;

typedef struct {
    Columns annotations, properties, application, entry, body;
    MapColumn map;
    Py_buffer message_key;
    Py_ssize_t longest_id;
} Rows;

/* --- one value --------------------------------------------------------------------------------------------------------------------- */

static int bit(const Py_buffer *bits, int64_t at) {
    return ((const uint8_t *)bits->buf)[at >> 3] >> (at & 7) & 1;
}

static int is_null(const Column *c, int64_t row) {
    return c->valid.buf && !bit(&c->valid, c->offset + row);
}

static int is_text(const Column *c) {
    return c->kind == STRING || c->kind == SYMBOL;
}

static int is_variable(const Column *c) {
    return is_text(c) || c->kind == BINARY;
}

static int64_t at_64(const Column *c, int64_t row) {
    int64_t value;
    memcpy(&value, (const uint8_t *)c->data.buf + (c->offset + row) * 8, 8);
    return value;
}

static int64_t at_32(const Py_buffer *numbers, int64_t at) {
    int32_t value;
    memcpy(&value, (const uint8_t *)numbers->buf + at * 4, 4);
    return value;
}

static int digits(uint64_t number, char *end) {
    int count = 0;
    do {
        *--end = (char)('0' + number % 10);
        count++;
    } while (number /= 10);
    return count;
}

/* Bytes of a value that is not null, without constructor and size where it has one. */
static int64_t raw_size(const Column *c, int64_t row) {
    char text[20];
    if (is_variable(c)) return at_32(&c->offsets, c->offset + row + 1) - at_32(&c->offsets, c->offset + row);
    return c->offsets.len + digits((uint64_t)at_64(c, row), text + sizeof text);
}

static int64_t variable_size(int64_t raw) {
    return raw + (raw < 256 ? 2 : 5);
}

static int is_small(int64_t number) {
    return number >= -128 && number < 128;
}

static int64_t value_size(const Column *c, int64_t row) {
    switch (c->kind) {
    case BOOLEAN: return 1;
    case INT: return is_small(at_32(&c->data, c->offset + row)) ? 2 : 5;
    case LONG: return is_small(at_64(c, row)) ? 2 : 9;
    case DOUBLE: case TIMESTAMP: return 9;
    default: return variable_size(raw_size(c, row));
    }
}

static uint8_t *put(uint8_t *p, const void *from, int64_t size) {
    if (size) memcpy(p, from, (size_t)size);
    return p + size;
}

static uint8_t *put_number(uint8_t *p, uint64_t number, int width) {
    for (int i = width - 1; i >= 0; i--) *p++ = (uint8_t)(number >> (8 * i));
    return p;
}

static uint8_t *put_key(uint8_t *p, const Py_buffer *key) {
    return put(p, key->buf, key->len);
}

/* Constructor and size; the wide constructor of binary, string and symbol is 0x10 above the narrow one. */
static uint8_t *put_variable_head(uint8_t *p, int narrow, int64_t raw) {
    *p++ = (uint8_t)(raw < 256 ? narrow : narrow + 0x10);
    return put_number(p, (uint64_t)raw, raw < 256 ? 1 : 4);
}

static uint8_t *put_integer(uint8_t *p, int64_t value, int small, int wide, int width) {
    *p++ = (uint8_t)(is_small(value) ? small : wide);
    return put_number(p, (uint64_t)value, is_small(value) ? 1 : width);
}

static uint8_t *put_value(uint8_t *p, const Column *c, int64_t row) {
    char text[20];
    switch (c->kind) {
    case BOOLEAN:
        *p++ = bit(&c->data, c->offset + row) ? 0x41 : 0x42;
        return p;
    case INT: return put_integer(p, at_32(&c->data, c->offset + row), 0x54, INT, 4);
    case LONG: return put_integer(p, at_64(c, row), 0x55, LONG, 8);
    case DOUBLE: case TIMESTAMP:
        *p++ = (uint8_t)c->kind;
        return put_number(p, (uint64_t)at_64(c, row), 8);
    case NUMBERED: {
        const int count = digits((uint64_t)at_64(c, row), text + sizeof text);
        p = put_variable_head(p, STRING, c->offsets.len + count);
        return put(put(p, c->offsets.buf, c->offsets.len), text + sizeof text - count, count);
    }
    default:
        p = put_variable_head(p, c->kind, raw_size(c, row));
        return put(p, (const uint8_t *)c->data.buf + at_32(&c->offsets, c->offset + row), raw_size(c, row));
    }
}

/* Whether a value that is not null is what it must be: within its buffer, as text UTF-8, and of at most so many characters (-1: any). */
static int is_right(const Column *c, int64_t row, Py_ssize_t longest) {
    if (c->kind == NUMBERED) return at_64(c, row) >= 0;
    if (!is_variable(c)) return 1;
    const int64_t start = at_32(&c->offsets, c->offset + row), size = raw_size(c, row);
    if (start < 0 || size < 0 || start + size > c->data.len) return 0;
    if (!is_text(c)) return 1;
    const uint8_t *text = (const uint8_t *)c->data.buf + start;
    uint8_t seen = 0;
    for (int64_t i = 0; i < size; i++) seen |= text[i];
    Py_ssize_t characters = (Py_ssize_t)size;
    if (seen & 0x80) {
        PyObject *decoded = PyUnicode_DecodeUTF8((const char *)text, characters, NULL);
        if (!decoded) {
            PyErr_Clear();
            return 0;
        }
        characters = PyUnicode_GET_LENGTH(decoded);
        Py_DECREF(decoded);
    }
    return longest < 0 || characters <= longest;
}

/* --- one row ----------------------------------------------------------------------------------------------------------------------- */

/* A list or map: its items, and their bytes together. */
typedef struct {
    int64_t items, bytes;
} Compound;

typedef struct {
    Compound annotations, properties, application, entry;
    int64_t map_start, map_end; /* the row's pairs */
    int64_t message;
} Plan;

static int is_narrow(Compound compound) {
    return compound.bytes < 255 && compound.items < 256;
}

static int64_t compound_size(Compound compound) {
    return compound.bytes + (is_narrow(compound) ? 3 : 9);
}

/* With the descriptor of a section; one without items is left out. */
static int64_t section_size(Compound compound) {
    return compound.items ? 3 + compound_size(compound) : 0;
}

static uint8_t *put_compound_head(uint8_t *p, int narrow, Compound compound) {
    const int width = is_narrow(compound) ? 1 : 4;
    *p++ = (uint8_t)(width == 1 ? narrow : narrow + 0x10);
    p = put_number(p, (uint64_t)(compound.bytes + width), width);
    return put_number(p, (uint64_t)compound.items, width);
}

static uint8_t *put_section_head(uint8_t *p, int section) {
    *p++ = 0x00;
    *p++ = 0x53;
    *p++ = (uint8_t)section;
    return p;
}

static void add_pairs(Compound *map, const Columns *columns, int64_t row) {
    for (int i = 0; i < columns->count; i++) {
        const Column *c = &columns->column[i];
        if (is_null(c, row)) continue;
        map->items += 2;
        map->bytes += c->key.len + value_size(c, row);
    }
}

static uint8_t *put_pairs(uint8_t *p, const Columns *columns, int64_t row) {
    for (int i = 0; i < columns->count; i++) {
        const Column *c = &columns->column[i];
        if (!is_null(c, row)) p = put_value(put_key(p, &c->key), c, row);
    }
    return p;
}

static void plan_map(const MapColumn *map, int64_t row, Plan *plan) {
    plan->map_start = plan->map_end = 0;
    if (!map->pair.count || (map->valid.buf && !bit(&map->valid, map->offset + row))) return;
    plan->map_start = at_32(&map->offsets, map->offset + row);
    plan->map_end = at_32(&map->offsets, map->offset + row + 1);
    const Column *key = &map->pair.column[0], *value = &map->pair.column[1];
    for (int64_t i = plan->map_start; i < plan->map_end; i++) {
        plan->application.items += 2;
        plan->application.bytes += value_size(key, i) + (is_null(value, i) ? 1 : value_size(value, i));
    }
}

static void plan_properties(const Columns *columns, int64_t row, Compound *list) {
    int used = columns->count;
    while (used && is_null(&columns->column[used - 1], row)) used--;
    list->items = used;
    for (int i = 0; i < used; i++) {
        const Column *c = &columns->column[i];
        list->bytes += is_null(c, row) ? 1 : value_size(c, row);
    }
}

/* Bytes of the entry. */
static int64_t measure(const Rows *rows, int64_t row, Plan *plan) {
    memset(plan, 0, sizeof *plan);
    add_pairs(&plan->annotations, &rows->annotations, row);
    plan_properties(&rows->properties, row, &plan->properties);
    plan_map(&rows->map, row, plan);
    add_pairs(&plan->application, &rows->application, row);
    plan->message = section_size(plan->annotations) + section_size(plan->properties) + section_size(plan->application);
    if (rows->body.count && !is_null(&rows->body.column[0], row)) plan->message += 3 + value_size(&rows->body.column[0], row);
    add_pairs(&plan->entry, &rows->entry, row);
    plan->entry.items += 2;
    plan->entry.bytes += rows->message_key.len + variable_size(plan->message);
    return compound_size(plan->entry);
}

static uint8_t *put_message(uint8_t *p, const Rows *rows, int64_t row, const Plan *plan) {
    if (plan->annotations.items) {
        p = put_compound_head(put_section_head(p, MESSAGE_ANNOTATIONS), 0xC1, plan->annotations);
        p = put_pairs(p, &rows->annotations, row);
    }
    if (plan->properties.items) {
        p = put_compound_head(put_section_head(p, PROPERTIES), 0xC0, plan->properties);
        for (int i = 0; i < plan->properties.items; i++) {
            const Column *c = &rows->properties.column[i];
            if (is_null(c, row)) *p++ = 0x40;
            else p = put_value(p, c, row);
        }
    }
    if (plan->application.items) {
        p = put_compound_head(put_section_head(p, APPLICATION_PROPERTIES), 0xC1, plan->application);
        const Column *key = &rows->map.pair.column[0], *value = &rows->map.pair.column[1];
        for (int64_t i = plan->map_start; i < plan->map_end; i++) {
            p = put_value(p, key, i);
            if (is_null(value, i)) *p++ = 0x40;
            else p = put_value(p, value, i);
        }
        p = put_pairs(p, &rows->application, row);
    }
    if (rows->body.count && !is_null(&rows->body.column[0], row)) p = put_value(put_section_head(p, DATA), &rows->body.column[0], row);
    return p;
}

static uint8_t *put_entry(uint8_t *p, const Rows *rows, int64_t row, const Plan *plan) {
    p = put_compound_head(p, 0xC1, plan->entry);
    p = put_pairs(p, &rows->entry, row);
    p = put_variable_head(put_key(p, &rows->message_key), BINARY, plan->message);
    return put_message(p, rows, row, plan);
}

static int are_right(const Columns *columns, int64_t row, Py_ssize_t longest) {
    for (int i = 0; i < columns->count; i++) {
        const Column *c = &columns->column[i];
        if (!is_null(c, row) && !is_right(c, row, longest)) return 0;
    }
    return 1;
}

static int map_is_right(const MapColumn *map, int64_t row) {
    if (!map->pair.count || (map->valid.buf && !bit(&map->valid, map->offset + row))) return 1;
    const int64_t start = at_32(&map->offsets, map->offset + row), end = at_32(&map->offsets, map->offset + row + 1);
    if (start < 0 || start > end || end > map->entries) return 0;
    for (int64_t i = start; i < end; i++) {
        /* A key that is null is for Python to judge. */
        if (is_null(&map->pair.column[0], i) || !are_right(&map->pair, i, -1)) return 0;
    }
    return 1;
}

static int row_is_right(const Rows *rows, int64_t row) {
    /* The first column of an entry is the message-id, which each must have. */
    return !is_null(&rows->entry.column[0], row) && are_right(&rows->entry, row, rows->longest_id) && are_right(&rows->annotations, row, -1)
        && are_right(&rows->properties, row, -1) && are_right(&rows->application, row, -1) && are_right(&rows->body, row, -1)
        && map_is_right(&rows->map, row);
}

/* --- what Python gives ------------------------------------------------------------------------------------------------------------- */

static int take_buffer(PyObject *from, Py_buffer *buffer) {
    if (from == Py_None) {
        memset(buffer, 0, sizeof *buffer);
        return 1;
    }
    return PyObject_GetBuffer(from, buffer, PyBUF_SIMPLE) == 0;
}

/* Whether each buffer has all of `count` rows. */
static int is_long_enough(const Column *c, int64_t count) {
    const int64_t end = c->offset + count;
    if (c->offset < 0 || (c->valid.buf && c->valid.len < (end + 7) / 8)) return 0;
    if (is_variable(c)) return count == 0 || c->offsets.len >= (end + 1) * 4;
    if (c->kind == BOOLEAN) return c->data.len >= (end + 7) / 8;
    return c->data.len >= end * (c->kind == INT ? 4 : 8);
}

/* 1, 0 to step aside, -1 with an exception. */
static int take_columns(PyObject *from, int64_t count, Columns *columns) {
    if (!PyTuple_Check(from)) {
        PyErr_SetString(PyExc_TypeError, "columns are a tuple");
        return -1;
    }
    if (PyTuple_GET_SIZE(from) > MAX_COLUMNS) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(from); i++) {
        Column *c = &columns->column[columns->count++];
        PyObject *key, *valid, *offsets, *data;
        Py_ssize_t offset;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(from, i), "OinOOO", &key, &c->kind, &offset, &valid, &offsets, &data)) return -1;
        c->offset = offset;
        if (!take_buffer(key, &c->key) || !take_buffer(valid, &c->valid) || !take_buffer(offsets, &c->offsets) || !take_buffer(data, &c->data))
            return -1;
        if (!is_long_enough(c, count)) return 0;
    }
    return 1;
}

static int take_map(PyObject *from, int64_t count, MapColumn *map) {
    if (from == Py_None) return 1;
    PyObject *valid, *offsets, *pair;
    Py_ssize_t offset, entries;
    if (!PyArg_ParseTuple(from, "nOOnO", &offset, &valid, &offsets, &entries, &pair)) return -1;
    map->offset = offset;
    map->entries = entries;
    if (!take_buffer(valid, &map->valid) || !take_buffer(offsets, &map->offsets)) return -1;
    const int taken = take_columns(pair, entries, &map->pair);
    if (taken != 1) return taken;
    const int64_t end = offset + count;
    return map->pair.count == 2 && offset >= 0 && map->offsets.len >= (end + 1) * 4 && (!map->valid.buf || map->valid.len >= (end + 7) / 8);
}

static void release_columns(Columns *columns) {
    for (int i = 0; i < columns->count; i++) {
        Column *c = &columns->column[i];
        PyBuffer_Release(&c->key);
        PyBuffer_Release(&c->valid);
        PyBuffer_Release(&c->offsets);
        PyBuffer_Release(&c->data);
    }
}

static void release(Rows *rows) {
    release_columns(&rows->annotations);
    release_columns(&rows->properties);
    release_columns(&rows->application);
    release_columns(&rows->entry);
    release_columns(&rows->body);
    release_columns(&rows->map.pair);
    PyBuffer_Release(&rows->map.valid);
    PyBuffer_Release(&rows->map.offsets);
    PyBuffer_Release(&rows->message_key);
    PyMem_Free(rows);
}

/* Where each entry starts, and last where they end; NULL to step aside, or with an exception. */
static PyObject *bounds_of(const Rows *rows, int64_t count) {
    PyObject *bounds = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int64_t));
    if (!bounds) return NULL;
    int64_t *bound = (int64_t *)PyBytes_AS_STRING(bounds), total = 0;
    Plan plan;
    for (int64_t row = 0; row < count; row++) {
        bound[row] = total;
        if (!row_is_right(rows, row) || (total += measure(rows, row, &plan)) > MAX_TOTAL) {
            Py_DECREF(bounds);
            return NULL;
        }
    }
    bound[count] = total;
    return bounds;
}

static PyObject *encode(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *annotations, *properties, *map, *application, *body, *entry, *message_key, *result = NULL;
    Py_ssize_t count, longest_id;
    if (!PyArg_ParseTuple(args, "nOOOOOOOn", &count, &annotations, &properties, &map, &application, &body, &entry, &message_key, &longest_id))
        return NULL;
    Rows *rows = PyMem_Calloc(1, sizeof *rows);
    if (!rows) return PyErr_NoMemory();
    rows->longest_id = longest_id;
    if (count >= 0 && take_buffer(message_key, &rows->message_key) && take_columns(annotations, count, &rows->annotations) == 1
        && take_columns(properties, count, &rows->properties) == 1 && take_map(map, count, &rows->map) == 1
        && take_columns(application, count, &rows->application) == 1 && take_columns(body, count, &rows->body) == 1
        && take_columns(entry, count, &rows->entry) == 1 && rows->entry.count) {
        PyObject *bounds = bounds_of(rows, count);
        if (bounds) {
            const int64_t *bound = (const int64_t *)PyBytes_AS_STRING(bounds);
            PyObject *entries = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bound[count]);
            if (entries) {
                uint8_t *start = (uint8_t *)PyBytes_AS_STRING(entries);
                Plan plan;
                for (int64_t row = 0; row < count; row++) {
                    measure(rows, row, &plan);
                    put_entry(start + bound[row], rows, row, &plan);
                }
                result = PyTuple_Pack(2, entries, bounds);
                Py_DECREF(entries);
            }
            Py_DECREF(bounds);
        }
    }
    release(rows);
    if (result || PyErr_Occurred()) return result;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"encode", encode, METH_VARARGS,
     "encode(count, annotations, properties, map, application, body, entry, message_key, longest_id): so many rows as entries one behind the\n"
     "other, and where each starts and the last ends, as 64-bit numbers; or None. Columns are tuples of (key, kind, offset, validity, offsets,\n"
     "data), a map column is (offset, validity, offsets, entries, (keys, values))."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native_encode", "Compiled encoder of plain rows; see native.py.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native_encode(void) {
    return PyModule_Create(&definition);
}
