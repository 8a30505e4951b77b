/* What a sender gives, compiled: a message of its own, and a request that has many; the same job as emulator/entities/message.py does.
 *
 * The one rule: be right or step aside. What is not of a shape that is known here to the last byte is None, and the scalar decoder then
 * says what it is, or what is wrong with it. So there are no errors here but those of memory.
 *
 * AMQP 1.0 part 1, section 1.6 (constructors) and part 3, section 3.2 (sections).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_native_cells.h"

/* Deeper nested values are for the scalar decoder, which goes farther. */
#define MAX_DEPTH 16
/* MAX_ID_LENGTH of emulator/entities/message.py, and what so many characters have of bytes at most. */
#define MAX_ID_LENGTH 128
#define MAX_ID_BYTES (4 * MAX_ID_LENGTH)

#define IS(name) same(b, key, name, sizeof(name) - 1)

static int is_absent(const Cell *cell) {
    return cell->code == -1 || cell->code == 0x40;
}

static int is_string(const Cell *cell) {
    return cell->code == 0xA1 || cell->code == 0xB1;
}

/* Past an array whose elements have bytes, all of the same width or each with its size, and are neither described nor nested. */
static int64_t after_array(const uint8_t *b, int64_t at, int64_t end) {
    int64_t count, start, stop;
    if (!compound(b, at, end, 0xE0, &count, &start, &stop) || start >= stop) return -1;
    int code = b[start++], width = fixed_width(code);
    if (width > 0) return code != 0x56 && count * width == stop - start ? stop : -1;
    int wide = code == 0xB0 || code == 0xB1 || code == 0xB3;
    if (!wide && code != 0xA0 && code != 0xA1 && code != 0xA3) return -1;
    for (; count; count--) {
        if (start + (wide ? 4 : 1) > stop) return -1;
        start += wide ? 4 + (int64_t)u32_at(b + start) : 1 + b[start];
    }
    return start == stop ? stop : -1;
}

/* Past a value of which every part decodes; -1 where the scalar decoder has to look. */
static int64_t after(const uint8_t *b, int64_t at, int64_t end, int depth) {
    Cell cell;
    if (head(b, at, end, &cell)) return cell.end;
    if (at >= end || depth == MAX_DEPTH) return -1;
    int64_t count, start, stop;
    switch (b[at]) {
    case 0x45: case 0xC0: case 0xD0:
        if (!compound(b, at, end, 0xC0, &count, &start, &stop)) return -1;
        break;
    case 0xC1: case 0xD1:
        if (!compound(b, at, end, 0xC1, &count, &start, &stop) || count % 2) return -1;
        break;
    case 0xE0: case 0xF0: return after_array(b, at, end);
    default: return -1;
    }
    for (; count; count--) {
        start = after(b, start, stop, depth + 1);
        if (start < 0) return -1;
    }
    return start == stop ? stop : -1;
}

static int is_map(const uint8_t *b, int64_t at, int64_t end) {
    return at < end && (b[at] == 0xC1 || b[at] == 0xD1);
}

static int is_list(const uint8_t *b, int64_t at, int64_t end) {
    return at < end && (b[at] == 0x45 || b[at] == 0xC0 || b[at] == 0xD0);
}

/* Whether a value stands as our own encoder would write it, so that its bytes can be kept as they are. */
static int is_canonical(const uint8_t *b, const Cell *cell) {
    const uint8_t *p = b + cell->start;
    int64_t number = 0;
    switch (cell->code) {
    case 0x40: case 0x41: case 0x42: case 0x43: case 0x44: case 0x50: case 0x51: case 0x54: case 0x55: case 0x60: case 0x61:
    case 0x83: case 0x98: case 0xA0: case 0xA1: case 0xA3: return 1;
    case 0x52: case 0x53: return p[0] != 0;
    case 0x70: return u32_at(p) >= 256;
    case 0x80: return u64_at(p) >= 256;
    case 0x71: case 0x81: integer(b, cell, &number); return number < -128 || number > 127;
    case 0xB0: case 0xB1: case 0xB3: return cell->end - cell->start >= 256;
    default: return 0;
    }
}

/* Whether a text may be an id, which others can read and which is not too long. */
static int is_identifier(const uint8_t *b, const Cell *cell) {
    if (!is_string(cell) || cell->end - cell->start > MAX_ID_BYTES || !is_utf8(b + cell->start, b + cell->end)) return 0;
    int characters = 0;
    for (const uint8_t *p = b + cell->start; p < b + cell->end; p++) characters += (*p & 0xC0) != 0x80;
    return characters <= MAX_ID_LENGTH;
}

/* One message */

typedef struct {
    Cell durable, priority, ttl, first_acquirer, delivery_count;
    Cell message_id, absolute_expiry_time, creation_time, group_id;
    Cell partition_key, scheduled_enqueue_time;
    int64_t delivery_annotations_start, delivery_annotations_end, bare_start;
    /* The annotations that are kept, in pieces. */
    int64_t kept_start[MAX_ITEMS / 2], kept_end[MAX_ITEMS / 2];
    int pieces, items;
} Said;

/* Annotations that only the broker's own value counts of: _BROKER_SET of emulator/entities/message.py, but for the time that a sender
   schedules by. */
static int is_broker_set(const uint8_t *b, const Cell *key) {
    return IS("x-opt-sequence-number") || IS("x-opt-enqueue-sequence-number") || IS("x-opt-enqueued-time") || IS("x-opt-locked-until") ||
           IS("x-opt-message-state") || IS("x-opt-deadletter-source");
}

static int64_t annotations(Said *said, const uint8_t *b, int64_t at, int64_t end) {
    int64_t count, start, stop;
    if (!frame(b, at, end, 0xC1, &count, &start, &stop) || count % 2) return -1;
    for (; count; count -= 2) {
        Cell cell, value;
        const Cell *key = &cell;
        if (!head(b, start, stop, &cell) || !is_text(cell.code) || !head(b, cell.end, stop, &value)) return -1;
        /* A key that comes again counts where it comes last. */
        if (IS("x-opt-scheduled-enqueue-time")) {
            said->scheduled_enqueue_time = value;
        } else if (!is_broker_set(b, key)) {
            if (IS("x-opt-partition-key")) said->partition_key = value;
            if (!is_canonical(b, key) || !is_canonical(b, &value)) return -1;
            if (!said->pieces || said->kept_end[said->pieces - 1] != start) said->kept_start[said->pieces++] = start;
            said->kept_end[said->pieces - 1] = value.end;
            said->items += 2;
        }
        start = value.end;
    }
    return start == stop ? stop : -1;
}

/* Finds what is said; 0 where the scalar decoder has to look. */
static int find(Said *said, const uint8_t *b, int64_t at, int64_t end) {
    Cell *header[5] = {&said->durable, &said->priority, &said->ttl, &said->first_acquirer, &said->delivery_count};
    Cell *properties[13] = {
        &said->message_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &said->absolute_expiry_time, &said->creation_time, &said->group_id,
        NULL, NULL
    };
    for (int i = 0; i < 5; i++) header[i]->code = -1;
    for (int i = 0; i < 13; i++)
        if (properties[i]) properties[i]->code = -1;
    said->partition_key.code = said->scheduled_enqueue_time.code = -1;
    said->delivery_annotations_start = said->delivery_annotations_end = 0;
    said->pieces = said->items = 0;
    said->bare_start = -1;
    int last = 0;
    while (at < end) {
        if (at + 3 > end || b[at] != 0x00 || b[at + 1] != 0x53) return 0;
        int section = b[at + 2];
        int64_t start = at;
        Cell cell;
        /* In the specification's order, each once, one body section: all else is for the scalar decoder. */
        if (section < HEADER || section > FOOTER || section <= last) return 0;
        if (section >= DATA && section <= AMQP_VALUE && last >= DATA) return 0;
        last = section;
        at += 3;
        switch (section) {
        case HEADER: at = list_fields(b, at, end, header, 5); break;
        case DELIVERY_ANNOTATIONS:
            at = is_map(b, at, end) ? after(b, at, end, 0) : -1;
            said->delivery_annotations_start = start;
            said->delivery_annotations_end = at;
            break;
        case MESSAGE_ANNOTATIONS: at = annotations(said, b, at, end); break;
        case PROPERTIES: at = list_fields(b, at, end, properties, 13); break;
        case DATA: at = head(b, at, end, &cell) && (cell.code == 0xA0 || cell.code == 0xB0) ? cell.end : -1; break;
        case AMQP_SEQUENCE: at = is_list(b, at, end) ? after(b, at, end, 0) : -1; break;
        case AMQP_VALUE: at = after(b, at, end, 0); break;
        default: at = is_map(b, at, end) ? after(b, at, end, 0) : -1;
        }
        if (at < 0) return 0;
        if (section >= PROPERTIES && said->bare_start < 0) said->bare_start = start;
    }
    if (said->bare_start < 0) said->bare_start = end;
    return 1;
}

static int is_uint_or_absent(const Cell *cell) {
    return is_absent(cell) || cell->code == 0x43 || cell->code == 0x52 || cell->code == 0x70;
}

/* Whether what is said is what it must be, so that nothing about it is a fault; a header as few have is for the scalar decoder. */
static int is_plain(const Said *said, const uint8_t *b) {
    const Cell *ids[3] = {&said->message_id, &said->group_id, &said->partition_key};
    for (int i = 0; i < 3; i++)
        if (!is_absent(ids[i]) && !is_identifier(b, ids[i])) return 0;
    if (!is_absent(&said->durable) && said->durable.code != 0x41) return 0;
    if (!is_absent(&said->priority) || !is_absent(&said->first_acquirer)) return 0;
    if (!is_uint_or_absent(&said->ttl) || !is_uint_or_absent(&said->delivery_count)) return 0;
    /* Without a ttl, these two say it. */
    if (is_absent(&said->ttl) && !is_absent(&said->absolute_expiry_time) && !is_absent(&said->creation_time)) return 0;
    const int time = said->scheduled_enqueue_time.code;
    return is_absent(&said->scheduled_enqueue_time) || time == 0x83 || time == 0x81;
}

static PyObject *text_or_none(const uint8_t *b, const Cell *cell) {
    if (is_absent(cell)) return Py_NewRef(Py_None);
    return PyUnicode_DecodeUTF8((const char *)b + cell->start, cell->end - cell->start, "strict");
}

static PyObject *integer_or_none(const uint8_t *b, const Cell *cell) {
    int64_t number = 0;
    if (is_absent(cell)) return Py_NewRef(Py_None);
    integer(b, cell, &number);
    return PyLong_FromLongLong(number);
}

static PyObject *kept_annotations(const Said *said, const uint8_t *b) {
    Py_ssize_t size = 0;
    for (int i = 0; i < said->pieces; i++) size += (Py_ssize_t)(said->kept_end[i] - said->kept_start[i]);
    PyObject *kept = PyBytes_FromStringAndSize(NULL, size);
    if (!kept) return NULL;
    char *to = PyBytes_AS_STRING(kept);
    for (int i = 0; i < said->pieces; i++) {
        size_t length = (size_t)(said->kept_end[i] - said->kept_start[i]);
        memcpy(to, b + said->kept_start[i], length);
        to += length;
    }
    return kept;
}

/* Of an IncomingMessage of emulator/entities/message.py. */
#define FIELDS 11

/* durable, priority and first-acquirer of nearly all messages, which share them so. */
static PyObject *plain_header, *durable_header;

/* A message as a named tuple of its fields, in their order there; None where it is for the scalar decoder. */
static PyObject *read_one(PyTypeObject *kind, const uint8_t *b, int64_t start, int64_t end) {
    Said said;
    if (!find(&said, b, start, end) || !is_plain(&said, b)) Py_RETURN_NONE;
    PyObject *fields[FIELDS] = {
        text_or_none(b, &said.message_id),
        text_or_none(b, &said.group_id),
        text_or_none(b, &said.partition_key),
        integer_or_none(b, &said.scheduled_enqueue_time),
        integer_or_none(b, &said.ttl),
        Py_NewRef(is_absent(&said.durable) ? plain_header : durable_header),
        PyBytes_FromStringAndSize(
            (const char *)b + said.delivery_annotations_start, said.delivery_annotations_end - said.delivery_annotations_start),
        kept_annotations(&said, b),
        PyLong_FromLong(said.items),
        PyBytes_FromStringAndSize((const char *)b + said.bare_start, end - said.bare_start),
        PyLong_FromLongLong(end - start),
    };
    int complete = 1;
    for (int i = 0; i < FIELDS; i++) complete = complete && fields[i];
    /* As tuple.__new__ of a subclass makes it. */
    PyObject *result = complete ? kind->tp_alloc(kind, FIELDS) : NULL;
    for (int i = 0; i < FIELDS; i++) {
        if (result) PyTuple_SET_ITEM(result, i, fields[i]);
        else Py_XDECREF(fields[i]);
    }
    return result;
}

static int is_named_tuple(PyObject *kind) {
    if (PyType_Check(kind) && PyType_IsSubtype((PyTypeObject *)kind, &PyTuple_Type) &&
        ((PyTypeObject *)kind)->tp_basicsize == PyTuple_Type.tp_basicsize) return 1;
    PyErr_SetString(PyExc_TypeError, "messages are made as a NamedTuple");
    return 0;
}

static PyObject *message(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *kind;
    Py_buffer buffer;
    if (!PyArg_ParseTuple(args, "Oy*", &kind, &buffer)) return NULL;
    PyObject *result = is_named_tuple(kind) ? read_one((PyTypeObject *)kind, buffer.buf, 0, buffer.len) : NULL;
    PyBuffer_Release(&buffer);
    return result;
}

/* Requests */

/* Where the map of an amqp-value section starts that ends the message, every section of which decodes; -1 for any other message. */
static PyObject *body_map(PyObject *self, PyObject *given) {
    (void)self;
    Py_buffer buffer;
    if (PyObject_GetBuffer(given, &buffer, PyBUF_SIMPLE) < 0) return NULL;
    const uint8_t *b = buffer.buf;
    int64_t at = 0, end = buffer.len, found = -1;
    int last = 0;
    while (at >= 0 && found < 0 && at + 3 <= end && b[at] == 0x00 && b[at + 1] == 0x53 && b[at + 2] > last) {
        last = b[at + 2];
        int64_t start = at + 3;
        at = last >= HEADER && last <= AMQP_VALUE ? after(b, start, end, 0) : -1;
        if (last == AMQP_VALUE && at == end && is_map(b, start, end)) found = start;
    }
    PyBuffer_Release(&buffer);
    return PyLong_FromLongLong(found);
}

/* The message of an entry of a schedule-message request, if the entry has nothing else but ids that are right. */
static int entry_message(const uint8_t *b, int64_t at, int64_t end, Cell *found, int64_t *next) {
    int64_t count, start, stop;
    if (!is_map(b, at, end) || !frame(b, at, end, 0xC1, &count, &start, &stop) || count % 2) return 0;
    found->code = -1;
    for (; count; count -= 2) {
        Cell cell, value;
        const Cell *key = &cell;
        if (!head(b, start, stop, &cell) || !is_string(&cell) || !head(b, cell.end, stop, &value)) return 0;
        start = value.end;
        if (IS("message")) {
            if (value.code != 0xA0 && value.code != 0xB0) return 0;
            *found = value;
        } else if (IS("message-id") || IS("session-id") || IS("partition-key") || IS("via-partition-key")) {
            if (!is_absent(&value) && !is_identifier(b, &value) && !(value.code == 0x98 && IS("message-id"))) return 0;
        } else {
            return 0;
        }
    }
    *next = stop;
    return start == stop && found->code != -1;
}

/* The messages of a schedule-message request whose body's map starts at `at`: each as a named tuple, or its bytes where it is for the
   scalar decoder. None where the request itself is for it. */
static PyObject *scheduled(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *kind;
    Py_buffer buffer;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(args, "Oy*n", &kind, &buffer, &at)) return NULL;
    const uint8_t *b = buffer.buf;
    int64_t end = buffer.len, count = 0, start = 0, stop = 0;
    Cell cell;
    const Cell *key = &cell;
    PyObject *result = NULL;
    int known = is_named_tuple(kind) && at >= 0 && frame(b, at, end, 0xC1, &count, &start, &stop) && count == 2 && head(b, start, stop, &cell) &&
                is_string(&cell) && IS("messages") && is_list(b, cell.end, stop);
    end = stop;
    known = known && compound(b, cell.end, end, 0xC0, &count, &start, &stop) && stop == end && count <= stop - start;
    if (known) result = PyList_New(count);
    for (Py_ssize_t i = 0; result && known && i < count; i++) {
        int64_t next;
        known = entry_message(b, start, stop, &cell, &next);
        if (!known) break;
        PyObject *one = read_one((PyTypeObject *)kind, b, cell.start, cell.end);
        if (one == Py_None) {
            Py_DECREF(one);
            one = PyBytes_FromStringAndSize((const char *)b + cell.start, cell.end - cell.start);
        }
        if (!one) Py_CLEAR(result);
        if (result) PyList_SET_ITEM(result, i, one);
        start = next;
    }
    PyBuffer_Release(&buffer);
    if (PyErr_Occurred()) return NULL;
    if (known && start == stop) return result;
    Py_XDECREF(result);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"message", message, METH_VARARGS, "message(kind, encoded): a sender's message as a NamedTuple of this kind; or None."},
    {"body_map", body_map, METH_O, "body_map(request): where the map starts that is the body of a request, all of which decodes; or -1."},
    {"scheduled", scheduled, METH_VARARGS,
     "scheduled(kind, request, at): the messages of a schedule-message request whose body is the map at `at`, each as a NamedTuple of\n"
     "this kind or its bytes; or None."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native_sender", "Compiled reader of what senders give; see native.py.", -1, methods, NULL, NULL, NULL, NULL
};

PyMODINIT_FUNC PyInit__native_sender(void) {
    plain_header = PyTuple_Pack(3, Py_None, Py_None, Py_None);
    durable_header = PyTuple_Pack(3, Py_True, Py_None, Py_None);
    return plain_header && durable_header ? PyModule_Create(&definition) : NULL;
}
