/* Bytes of requests and replies, taken apart and put together: the twin of framing.py and lone.py.

Each function does what the one of the same name there does, which says more; tests compare them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>
#include "../core/sending.h"
#include "../core/slots.h"

#define VERSION 3  /* of the functions: what was compiled for another is not used */
#define LENGTH_DIGITS 19
#define MOST_OWNERS 64

static const char END[] = "END\r\n";
#define END_SIZE ((Py_ssize_t)sizeof END - 1)

/* The first "\r\n" in [at, end), or NULL. */
static const char *line_end(const char *at, const char *end) {
    while (at < end && (at = memchr(at, '\r', end - at))) {
        if (at + 1 < end && at[1] == '\n') return at;
        at++;
    }
    return NULL;
}

/* The number that [at, end) is, or -1: digits alone, so many that it cannot overflow. */
static long long number(const char *at, const char *end) {
    if (at == end || end - at > LENGTH_DIGITS) return -1;
    unsigned long long found = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9') return -1;
        found = found * 10 + (unsigned)(*at - '0');
    }
    return found > LLONG_MAX ? LLONG_MAX : (long long)found;
}

static int is_end(const char *at, const char *end) {
    return end - at >= END_SIZE && !memcmp(at, END, END_SIZE);
}

/* Where the item at `at` ends, which `END` must follow; NULL if there is anything else. */
static const char *get_end(const char *at, const char *end) {
    const char *line = *at == 'V' ? line_end(at, end) : NULL, *word = at;
    if (!line) return NULL;
    int spaces = 0;
    for (const char *c = at; c < line; c++) if (*c == ' ') { spaces++; word = c + 1; }
    long long length = spaces == 3 ? number(word, line) : -1;
    if (length < 0 || length > end - line - 4) return NULL;
    const char *after = line + 4 + length;
    return after[-1] == '\n' && is_end(after, end) ? after : NULL;
}

static PyObject *split_gets(PyObject *self, PyObject *data) {
    if (!PyBytes_Check(data)) return PyErr_Format(PyExc_TypeError, "bytes are needed");
    const char *start = PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data), *at = start;
    PyObject *found = PyList_New(0);
    while (found && at < end) {
        const char *after = is_end(at, end) ? at : get_end(at, end);
        if (!after) break;
        PyObject *one = PyBytes_FromStringAndSize(at, after - at);
        if (!one || PyList_Append(found, one)) Py_CLEAR(found);
        Py_XDECREF(one);
        at = after + END_SIZE;
    }
    if (!found) return NULL;
    return Py_BuildValue("(Nn)", found, (Py_ssize_t)(at - start));
}

/* Where the item at `at` ends, whose header `line` ends; NULL if it is none, or not all of it is there. */
static const char *item_end(const char *at, const char *line, const char *end) {
    const char *words[6] = {at};
    int known = 1;  /* of them, and then one past the last */
    for (const char *c = at; c < line && known < 6; c++) if (*c == ' ') words[known++] = c + 1;
    if (known < 4 || known > 5) return NULL;
    words[known] = line + 1;
    long long length = number(words[3], words[4] - 1);
    if (length < 0 || length > end - line - 4) return NULL;
    const char *after = line + 4 + length;
    return after[-2] == '\r' && after[-1] == '\n' ? after : NULL;
}

static PyObject *items(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t position = count == 3 ? PyLong_AsSsize_t(args[2]) : -1;
    if (count != 3 || !PyList_Check(args[0]) || !PyBytes_Check(args[1])
        || position < 0 || position > PyBytes_GET_SIZE(args[1]))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "a list, bytes and a position are needed");
    const char *start = PyBytes_AS_STRING(args[1]), *end = start + PyBytes_GET_SIZE(args[1]), *at = start + position;
    Py_ssize_t size = PyList_GET_SIZE(args[0]);
    PyObject *found = PyList_New(size);
    if (!found) return NULL;
    int over = 0;  /* what follows is no whole item */
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *key = PyList_GET_ITEM(args[0], i);
        if (!PyBytes_Check(key)) {
            Py_DECREF(found);
            return PyErr_Format(PyExc_TypeError, "keys are bytes");
        }
        Py_ssize_t length = PyBytes_GET_SIZE(key);
        const char *after = at, *name = at + 6;
        if (!over && end - at > 6 + length && !memcmp(at, "VALUE ", 6)
            && !memcmp(name, PyBytes_AS_STRING(key), length) && name[length] == ' ') {
            const char *line = line_end(at, end);
            after = line ? item_end(at, line, end) : NULL;
            if (!after) { over = 1; after = at; }
        }
        PyObject *item = PyBytes_FromStringAndSize(at, after - at);
        if (!item) {
            Py_DECREF(found);
            return NULL;
        }
        PyList_SET_ITEM(found, i, item);
        at = after;
    }
    return Py_BuildValue("(Nn)", found, (Py_ssize_t)(at - start));
}

static PyObject *gather(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyList_Check(args[0]) || !PyList_Check(args[1])
        || PyList_GET_SIZE(args[0]) != PyList_GET_SIZE(args[1]))
        return PyErr_Format(PyExc_ValueError, "two lists of the same length are needed");
    PyObject *owners[MOST_OWNERS], *lists[MOST_OWNERS];  /* of the first ones, without references */
    int known = 0;
    PyObject *found = PyDict_New();
    for (Py_ssize_t i = 0; found && i < PyList_GET_SIZE(args[0]); i++) {
        PyObject *owner = PyList_GET_ITEM(args[0], i), *list;
        int at = 0;
        while (at < known && owners[at] != owner) at++;
        list = at < known ? lists[at] : PyDict_GetItemWithError(found, owner);
        if (!list && !PyErr_Occurred() && (list = PyList_New(0))) {
            int failed = PyDict_SetItem(found, owner, list);
            Py_DECREF(list);  /* the dictionary has it */
            if (failed) list = NULL;
            else if (known < MOST_OWNERS) { owners[known] = owner; lists[known++] = list; }
        }
        if (!list || PyList_Append(list, PyList_GET_ITEM(args[1], i))) Py_CLEAR(found);
    }
    return found;
}

static PyObject *interleave(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 4 || !PyList_Check(args[0]) || !PyDict_Check(args[1]) || !PyBytes_Check(args[2]) || !PyBytes_Check(args[3]))
        return PyErr_Format(PyExc_TypeError, "a list, a dictionary and twice bytes are needed");
    Py_ssize_t parts = PyDict_GET_SIZE(args[1]), number = PyList_GET_SIZE(args[0]), place = 0, total = PyBytes_GET_SIZE(args[3]);
    struct Part { PyObject *owner, *list; Py_ssize_t next; } few[MOST_OWNERS], *all = few;
    const char *each = PyBytes_AS_STRING(args[2]);
    Py_ssize_t each_size = PyBytes_GET_SIZE(args[2]);
    PyObject *owner, *list, *result = NULL;
    PyObject *short_pieces[MOST_OWNERS], **pieces = short_pieces;
    if (parts > MOST_OWNERS && !(all = PyMem_New(struct Part, parts))) return PyErr_NoMemory();
    if (number > MOST_OWNERS && !(pieces = PyMem_New(PyObject *, number))) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; PyDict_Next(args[1], &place, &owner, &list); i++) {
        if (!PyList_Check(list)) {
            PyErr_SetString(PyExc_TypeError, "values are lists");
            goto done;
        }
        all[i] = (struct Part){owner, list, 0};
    }
    for (Py_ssize_t i = 0; i < number; i++) {
        PyObject *wanted = PyList_GET_ITEM(args[0], i), *piece = NULL;
        Py_ssize_t at = 0;
        while (at < parts && all[at].owner != wanted) at++;
        if (at < parts && all[at].next < PyList_GET_SIZE(all[at].list)) piece = PyList_GET_ITEM(all[at].list, all[at].next++);
        if (!piece || !PyBytes_Check(piece)) {
            PyErr_SetString(PyExc_ValueError, "there are too few pieces, or they are not bytes");
            goto done;
        }
        pieces[i] = piece;
        total += PyBytes_GET_SIZE(piece) + each_size;
    }
    result = PyBytes_FromStringAndSize(NULL, total);
    if (!result) goto done;
    char *to = PyBytes_AS_STRING(result);
    for (Py_ssize_t i = 0; i < number; i++) {
        Py_ssize_t size = PyBytes_GET_SIZE(pieces[i]);
        memcpy(to, PyBytes_AS_STRING(pieces[i]), size);
        memcpy(to + size, each, each_size);
        to += size + each_size;
    }
    memcpy(to, PyBytes_AS_STRING(args[3]), PyBytes_GET_SIZE(args[3]));
done:
    if (all != few) PyMem_Free(all);
    if (pieces != short_pieces) PyMem_Free(pieces);
    return result;
}

/* Attributes */

static inline int put(PyObject *owner, const Field *field, PyObject *value) {
    return set_new(owner, field, Py_NewRef(value));
}

/* An int; -1 with an error if it is none. */
static long long get_number(PyObject *owner, const Field *field) {
    PyObject *value = get(owner, field);
    long long found = value ? PyLong_AsLongLong(value) : -1;
    Py_XDECREF(value);
    return found;
}

static int put_number(PyObject *owner, const Field *field, long long value) {
    return set_new(owner, field, PyLong_FromLongLong(value));
}

static double get_float(PyObject *owner, const Field *field) {
    PyObject *value = get(owner, field);
    double found = value ? PyFloat_AsDouble(value) : -1;
    Py_XDECREF(value);
    return found;
}

/* Whether an attribute is that object: 0 or 1, or -1. */
static int is_same(PyObject *owner, const Field *field, PyObject *other) {
    PyObject *value = get(owner, field);
    Py_XDECREF(value);  /* the owner has it, or it is only compared */
    return value ? value == other : -1;
}

static PyObject *piece(PyObject *data, Py_ssize_t from, Py_ssize_t to) {
    if (!from && to == PyBytes_GET_SIZE(data)) return Py_NewRef(data);
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + from, to - from);
}

/* Writes to a transport whose socket it knows: writer_of in lone.py. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *transport;
    int fd;
} Writer;

static PyTypeObject Writer_type;
static PyObject *s_write, *s_unsent;
static struct { PyTypeObject *type; PyObject *method; } unsent;  /* how that type of transports tells what is yet to be sent */

/* How the transport tells what it has yet to send. Without a reference. */
static PyObject *unsent_of(PyObject *transport) {
    if (unsent.type != Py_TYPE(transport)) {
        PyObject *method = PyObject_GetAttr((PyObject *)Py_TYPE(transport), s_unsent);
        if (!method) return NULL;
        Py_XSETREF(unsent.method, method);
        Py_XSETREF(unsent.type, (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(transport)));
    }
    return unsent.method;
}

static PyObject *writer_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names);

static int writer_init(Writer *self, PyObject *args, PyObject *kwargs) {
    PyObject *transport;
    int fd;
    if (kwargs || !PyArg_ParseTuple(args, "Oi", &transport, &fd)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a transport and a number are needed");
        return -1;
    }
    Py_XSETREF(self->transport, Py_NewRef(transport));
    self->call = writer_call;
    self->fd = fd;
    return 0;
}

static int writer_traverse(Writer *self, visitproc visit, void *arg) {
    Py_VISIT(self->transport);
    return 0;
}

static int writer_clear(Writer *self) {
    self->fd = -1;
    Py_CLEAR(self->transport);
    return 0;
}

static void writer_dealloc(Writer *self) {
    PyObject_GC_UnTrack(self);
    writer_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Sends [from, to) of `data` as the transport would, which gets what could not be sent. */
static int write_part(Writer *self, PyObject *data, Py_ssize_t from, Py_ssize_t to) {
    PyObject *transport = self->transport, *method, *rest, *result = NULL;
    if (!transport) return PyErr_Format(PyExc_ValueError, "there is no transport"), -1;
    Py_INCREF(transport);
    if (self->fd >= 0 && to - from <= MOST_AT_ONCE && to > from) {
        Py_ssize_t sent = (method = unsent_of(transport))
            ? send_now(self->fd, transport, method, PyBytes_AS_STRING(data) + from, to - from) : -1;
        if (sent < 0 || (from += sent) == to) {
            Py_DECREF(transport);
            return sent < 0 ? -1 : 0;
        }
    }
    rest = piece(data, from, to);
    if (rest) result = PyObject_CallMethodOneArg(transport, s_write, rest);
    Py_XDECREF(rest);
    Py_XDECREF(result);
    Py_DECREF(transport);
    return result ? 0 : -1;
}

static PyObject *writer_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names) {
    if (PyVectorcall_NARGS(flags) != 1 || names || !PyBytes_CheckExact(args[0]))
        return PyErr_Format(PyExc_TypeError, "bytes are needed");
    if (write_part((Writer *)self, args[0], 0, PyBytes_GET_SIZE(args[0]))) return NULL;
    Py_RETURN_NONE;
}


static PyTypeObject Writer_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.proxy._native.Writer",
    .tp_basicsize = sizeof(Writer),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Writer, call),
    .tp_doc = "Writes to a transport.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)writer_init,
    .tp_call = PyVectorcall_Call,
    .tp_traverse = (traverseproc)writer_traverse,
    .tp_clear = (inquiry)writer_clear,
    .tp_dealloc = (destructor)writer_dealloc,
};

/* Writes with what may be such a writer. */
static int write_with(PyObject *write, PyObject *data, Py_ssize_t from, Py_ssize_t to) {
    if (Py_IS_TYPE(write, &Writer_type)) return write_part((Writer *)write, data, from, to);
    PyObject *one = piece(data, from, to);
    PyObject *result = one ? PyObject_CallOneArg(write, one) : NULL;
    Py_XDECREF(one);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Nodes and their connections, whose attributes are known by `know`: node.py and link.py. */

static struct {
    PyTypeObject *node, *link;
    PyObject *one_part, *other_part;  /* types of receivers in Python */
    PyObject *monotonic, *monotonic_ns;
    PyObject *append, *popleft;  /* of the deques of receivers */
    long long many_pending;
    double between_times, between_its_times;  /* seconds */
    Field limited, queue, pending, answered, last_sent, timed, last_timed, until, lease, lease_until, scheduler, flusher,
        flush_due, timer, of_node, in_batches, queued, timing, due, next_timed, retired, usual, owner, paused, write;
} known;

static PyObject *s_together, *s_call_together, *s_flush, *s_handed_out;

/* Has what waits for a node be sent in the next iteration of the event loop: `Node._flush_next`. */
static int flush_next(PyObject *node) {
    PyObject *lease = get(node, &known.lease), *until = lease ? get(lease, &known.lease_until) : NULL;
    Py_XDECREF(lease);
    if (set_new(node, &known.until, until)) return -1;
    PyObject *scheduler = get(node, &known.scheduler), *flusher = scheduler ? get(node, &known.flusher) : NULL;
    PyObject *together = flusher ? PyObject_GetAttr(scheduler, s_together) : NULL;
    int failed = -1;
    if (together && PyList_CheckExact(together) && PyList_GET_SIZE(together)) failed = PyList_Append(together, flusher);
    else if (together) {
        PyObject *result = PyObject_CallMethodOneArg(scheduler, s_call_together, flusher);
        failed = result ? 0 : -1;
        Py_XDECREF(result);
    }
    Py_XDECREF(scheduler);
    Py_XDECREF(flusher);
    Py_XDECREF(together);
    return failed;
}

/* Sends what waits for a node, if there is nothing to do but that; returns whether it was so, or -1. */
static int flush_usual(PyObject *node) {
    PyObject *queue = get(node, &known.queue), *link = NULL, *data = NULL, *write = NULL, *timing = NULL, *moment;
    int done = queue ? 0 : -1, is, times = 0;
    Py_ssize_t count = 0, total = 0;
    double now, due;
    if (done || !PyList_CheckExact(queue) || !(count = PyList_GET_SIZE(queue))) goto end;
    done = -1;
    if ((is = is_same(node, &known.timer, Py_None))) { done = is < 0 ? -1 : 0; goto end; }
    if (!(link = get(node, &known.of_node))) goto end;
    if (!PyObject_TypeCheck(link, known.link)) { done = 0; goto end; }
    if ((is = is_same(link, &known.paused, Py_False)) < 1) { done = is; goto end; }
    if (!(moment = PyObject_CallNoArgs(known.monotonic))) goto end;
    now = PyFloat_AsDouble(moment);
    Py_DECREF(moment);
    due = get_float(node, &known.until);
    if (PyErr_Occurred()) goto end;
    if (now >= due) { done = 0; goto end; }
    long long timed = get_number(node, &known.timed);
    if (timed == -1 && PyErr_Occurred()) goto end;
    if (!timed) {
        if (!(timing = get(node, &known.timing))) goto end;
        due = get_float(timing, &known.due);
        double next = get_float(node, &known.next_timed);
        if (PyErr_Occurred()) goto end;
        times = now >= due || now >= next;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *one = PyList_GET_ITEM(queue, i);
        if (!PyBytes_CheckExact(one)) { done = 0; goto end; }
        total += PyBytes_GET_SIZE(one);
    }
    if (count == 1) data = Py_NewRef(PyList_GET_ITEM(queue, 0));
    else if ((data = PyBytes_FromStringAndSize(NULL, total))) {
        char *to = PyBytes_AS_STRING(data);
        for (Py_ssize_t i = 0; i < count; i++) {
            PyObject *one = PyList_GET_ITEM(queue, i);
            memcpy(to, PyBytes_AS_STRING(one), PyBytes_GET_SIZE(one));
            to += PyBytes_GET_SIZE(one);
        }
    }
    if (!data || !(write = get(link, &known.write))) goto end;
    long long more = get_number(node, &known.in_batches), last = get_number(node, &known.last_sent);
    long long answered = get_number(node, &known.answered);
    if (PyErr_Occurred()) goto end;
    last += count + more;
    if (put_number(node, &known.last_sent, last) || PyList_SetSlice(queue, 0, count, NULL)
        || (more && put_number(node, &known.in_batches, 0)) || put_number(node, &known.queued, 0)
        || put(node, &known.flush_due, Py_False)
        || put(node, &known.limited, last - answered > known.many_pending ? Py_True : Py_False)
        || (times && (set_new(node, &known.timed, PyObject_CallNoArgs(known.monotonic_ns))
                      || put_number(node, &known.last_timed, last)
                      || set_new(timing, &known.due, PyFloat_FromDouble(now + known.between_times))
                      || set_new(node, &known.next_timed, PyFloat_FromDouble(now + known.between_its_times))))
        || write_with(write, data, 0, total)) goto end;
    done = 1;
end:
    Py_XDECREF(queue);
    Py_XDECREF(link);
    Py_XDECREF(data);
    Py_XDECREF(write);
    Py_XDECREF(timing);
    return done;
}

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *node;
} Flusher;

static PyObject *flusher_call(PyObject *bound, PyObject *const *args, size_t flags, PyObject *names);

static int flusher_init(Flusher *self, PyObject *args, PyObject *kwargs) {
    PyObject *node;
    if (kwargs || !PyArg_ParseTuple(args, "O", &node)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a node is needed");
        return -1;
    }
    Py_XSETREF(self->node, Py_NewRef(node));
    self->call = flusher_call;
    return 0;
}

static int flusher_traverse(Flusher *self, visitproc visit, void *arg) {
    Py_VISIT(self->node);
    return 0;
}

static int flusher_clear(Flusher *self) {
    Py_CLEAR(self->node);
    return 0;
}

static void flusher_dealloc(Flusher *self) {
    PyObject_GC_UnTrack(self);
    flusher_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *flusher_call(PyObject *bound, PyObject *const *args, size_t flags, PyObject *names) {
    PyObject *node = ((Flusher *)bound)->node, *result = NULL;
    if (PyVectorcall_NARGS(flags) || names) return PyErr_Format(PyExc_TypeError, "no arguments are taken");
    if (!node) Py_RETURN_NONE;
    Py_INCREF(node);
    int done = Py_IS_TYPE(node, known.node) ? flush_usual(node) : 0;
    if (done > 0) result = Py_NewRef(Py_None);
    else if (!done) result = PyObject_CallMethodNoArgs(node, s_flush);
    Py_DECREF(node);
    return result;
}

static PyTypeObject Flusher_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.proxy._native.Flusher",
    .tp_basicsize = sizeof(Flusher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Flusher, call),
    .tp_doc = "Sends what waits for a node.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)flusher_init,
    .tp_call = PyVectorcall_Call,
    .tp_traverse = (traverseproc)flusher_traverse,
    .tp_clear = (inquiry)flusher_clear,
    .tp_dealloc = (destructor)flusher_dealloc,
};

/* A request that came alone: Lone in lone.py. */

typedef struct {
    PyObject_HEAD
    PyObject *executor, *write, *counters;
    PyObject *by_line, *nodes;  /* dictionaries, or None while a request must not come alone */
    PyObject *others;  /* the queue of other requests */
    Py_ssize_t most;
    char alone, reads;
} Lone;

static PyTypeObject Lone_type;
static PyObject *s_answer, *s_append, *s_bytes_written, *s_fail, *s_note_time, *s_popleft, *s_send, *s_take_some, *s_wrote;

static int lone_init(Lone *self, PyObject *args, PyObject *kwargs) {
    PyObject *executor;
    if (kwargs || !PyArg_ParseTuple(args, "O", &executor)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "an executor is needed");
        return -1;
    }
    Py_XSETREF(self->executor, Py_NewRef(executor));
    self->reads = 1;
    return 0;
}

static int lone_traverse(Lone *self, visitproc visit, void *arg) {
    Py_VISIT(self->executor);
    Py_VISIT(self->write);
    Py_VISIT(self->counters);
    Py_VISIT(self->by_line);
    Py_VISIT(self->nodes);
    Py_VISIT(self->others);
    return 0;
}

static int lone_clear(Lone *self) {
    Py_CLEAR(self->executor);
    Py_CLEAR(self->write);
    Py_CLEAR(self->counters);
    Py_CLEAR(self->by_line);
    Py_CLEAR(self->nodes);
    Py_CLEAR(self->others);
    return 0;
}

static void lone_dealloc(Lone *self) {
    PyObject_GC_UnTrack(self);
    lone_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *tell(Lone *self, PyObject *name, PyObject *what) {
    PyObject *executor = self->executor;
    if (!executor || executor == Py_None) Py_RETURN_NONE;
    Py_INCREF(executor);
    PyObject *result = PyObject_CallMethodOneArg(executor, name, what);
    Py_DECREF(executor);
    return result;
}

static PyObject *lone_answer(Lone *self, PyObject *reply) { return tell(self, s_answer, reply); }
static PyObject *lone_fail(Lone *self, PyObject *error) { return tell(self, s_fail, error); }

/* Has `node` send a request; what `Node.send` does if nothing is special is done here. */
static int send_by(PyObject *node, PyObject *data, PyObject *receiver) {
    PyObject *result, *queue, *pending = NULL;
    int is = Py_IS_TYPE(node, known.node) ? is_same(node, &known.limited, Py_False) : 0, failed = -1;
    if (is < 0) return -1;
    if (is) {
        if (!(queue = get(node, &known.queue)) || !(pending = get(node, &known.pending)) || !PyList_CheckExact(queue)) goto done;
        if (!PyList_GET_SIZE(queue) && flush_next(node)) goto done;
        if (PyList_Append(queue, data)) goto done;
        PyObject *with[] = {pending, receiver};
        result = PyObject_Vectorcall(known.append, with, 2, NULL);
        failed = result ? 0 : -1;
        Py_XDECREF(result);
    done:
        Py_XDECREF(queue);
        Py_XDECREF(pending);
        return failed;
    }
    PyObject *args[] = {node, data, receiver};
    result = PyObject_VectorcallMethod(s_send, args, 3, NULL);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Forwards a request; returns whether it was, or -1. */
static int forward(Lone *self, PyObject *node, PyObject *data, int reads) {
    self->alone = 1;
    self->reads = (char)reads;
    Py_INCREF(node);
    int failed = send_by(node, data, (PyObject *)self);
    Py_DECREF(node);
    return failed ? -1 : 1;
}

static int take_line(Lone *self, PyObject *by_line, PyObject *data, PyObject *kind) {
    if (self->alone) return 0;
    PyObject *node = PyDict_GetItemWithError(by_line, data);
    if (!node) return PyErr_Occurred() ? -1 : 0;
    return (PyObject *)Py_TYPE(node) == kind ? forward(self, node, data, 1) : 0;
}

static PyObject *lone_take(Lone *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3 || !PyDict_Check(args[0]) || !PyBytes_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "a dictionary, bytes and a type are needed");
    int taken = take_line(self, args[0], args[1], args[2]);
    return taken < 0 ? NULL : PyBool_FromLong(taken);
}

/* The number that [at, end) is if it is written as it should be, and no more than four digits; else -1. */
static long small_number(const char *at, const char *end) {
    if (end - at > 4 || (end - at > 1 && *at == '0')) return -1;
    return (long)number(at, end);
}

/* Where the set at `at` ends, whose line ends at `line`; its value has at most `most` bytes, all of which are there.
 * NULL if it is anything else. `key_end` is where its key ends. */
static const char *set_end(const char *at, const char *line, const char *end, long most, const char **key_end) {
    const char *words[5];
    int known = 1;
    /* A known key may have a line feed, which ends a line for nodes. */
    if (line - at < 4 || memcmp(at, "set ", 4) || memchr(at, '\n', line - at)) return NULL;
    words[0] = at + 4;
    for (const char *c = at + 4; c < line; c++) {
        if (*c != ' ') continue;
        if (known > 3) return NULL;
        words[known++] = c + 1;
    }
    if (known != 4) return NULL;
    long length = small_number(words[3], line);
    if (length < 0 || length > most || length > end - line - 4
        || small_number(words[1], words[2] - 1) < 0 || small_number(words[2], words[3] - 1) < 0) return NULL;
    const char *after = line + 4 + length;
    *key_end = words[1] - 1;
    return after[-2] == '\r' && after[-1] == '\n' ? after : NULL;
}

static int take_set(Lone *self, PyObject *nodes, PyObject *data, long most, PyObject *kind) {
    const char *start = PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data), *line = line_end(start, end), *word;
    if (self->alone || !line || set_end(start, line, end, most, &word) != end) return 0;
    PyObject *key = PyBytes_FromStringAndSize(start + 4, word - start - 4);
    PyObject *node = key ? PyDict_GetItemWithError(nodes, key) : NULL;
    Py_XDECREF(key);
    if (!node) return PyErr_Occurred() ? -1 : 0;
    return (PyObject *)Py_TYPE(node) == kind ? forward(self, node, data, 0) : 0;
}

/* The key of a change that is one line, is complete, and has one reply: where it ends is `key_end`. NULL for anything else. */
static const char *changed_key(const char *at, const char *end, const char **key_end) {
    static const struct { const char *name; int size, number; } kinds[] = {
        {"delete ", 7, 0}, {"incr ", 5, 1}, {"decr ", 5, 1}, {"touch ", 6, 1}};
    if (end - at < 9 || end[-2] != '\r' || end[-1] != '\n') return NULL;
    end -= 2;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (*at != *kinds[i].name || end - at <= kinds[i].size || memcmp(at, kinds[i].name, kinds[i].size)) continue;
        const char *key = at + kinds[i].size, *space = memchr(key, ' ', end - key);
        /* A known key may have a line feed, which ends a line for nodes. */
        if (!space != !kinds[i].number || memchr(key, '\n', end - key)) return NULL;
        if (space && small_number(space + 1, end) < 0) return NULL;
        *key_end = space ? space : end;
        Py_ssize_t size = *key_end - key;
        if ((size == 7 && !memcmp(key, "noreply", 7)) || (size == 25 && !memcmp(key, "AmazonElastiCache:cluster", 25))) return NULL;
        return key;
    }
    return NULL;
}

static int take_change(Lone *self, PyObject *nodes, PyObject *data, PyObject *kind) {
    const char *start = PyBytes_AS_STRING(data), *word = NULL, *found = changed_key(start, start + PyBytes_GET_SIZE(data), &word);
    if (self->alone || !found) return 0;
    PyObject *key = PyBytes_FromStringAndSize(found, word - found);
    PyObject *node = key ? PyDict_GetItemWithError(nodes, key) : NULL;
    Py_XDECREF(key);
    if (!node) return PyErr_Occurred() ? -1 : 0;
    return (PyObject *)Py_TYPE(node) == kind ? forward(self, node, data, 0) : 0;
}

static PyObject *lone_take_set(Lone *self, PyObject *const *args, Py_ssize_t count) {
    long most = count == 4 ? PyLong_AsLong(args[2]) : -1;
    if (most < 0 || !PyDict_Check(args[0]) || !PyBytes_CheckExact(args[1]))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "a dictionary, bytes, a number and a type are needed");
    int taken = take_set(self, args[0], args[1], most, args[3]);
    return taken < 0 ? NULL : PyBool_FromLong(taken);
}

static PyMethodDef lone_methods[] = {
    {"answer", (PyCFunction)lone_answer, METH_O, "Take the reply."},
    {"fail", (PyCFunction)lone_fail, METH_O, "Take the error that stands for the reply."},
    {"take", (PyCFunction)(void (*)(void))lone_take, METH_FASTCALL, "Forward a get that is known by its line."},
    {"take_set", (PyCFunction)(void (*)(void))lone_take_set, METH_FASTCALL, "Forward a small set."},
    {NULL},
};
static PyMemberDef lone_members[] = {
    {"executor", T_OBJECT, offsetof(Lone, executor), 0, NULL},
    {"write", T_OBJECT, offsetof(Lone, write), 0, NULL},
    {"counters", T_OBJECT, offsetof(Lone, counters), 0, NULL},
    {"by_line", T_OBJECT, offsetof(Lone, by_line), 0, NULL},
    {"nodes", T_OBJECT, offsetof(Lone, nodes), 0, NULL},
    {"others", T_OBJECT, offsetof(Lone, others), 0, NULL},
    {"most", T_PYSSIZET, offsetof(Lone, most), 0, NULL},
    {"alone", T_BOOL, offsetof(Lone, alone), 0, NULL},
    {"reads", T_BOOL, offsetof(Lone, reads), 0, NULL},
    {NULL},
};
static PyTypeObject Lone_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.proxy._native.Lone",
    .tp_basicsize = sizeof(Lone),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "A request that came alone.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)lone_init,
    .tp_traverse = (traverseproc)lone_traverse,
    .tp_clear = (inquiry)lone_clear,
    .tp_dealloc = (destructor)lone_dealloc,
    .tp_methods = lone_methods,
    .tp_members = lone_members,
};

#define LONGEST_LINE 256  /* of a usual reply, longer ones are left to the scanner */

/* Where a reply that is one line ends, or a value of the meta protocol: what a change or a meta get is answered with. NULL
 * for anything else, and for what the scanner has to look at. */
static const char *change_end(const char *at, const char *end) {
    const char *line;
    switch (*at) {
    case 'D': case 'N': case 'T': case 'H': case 'O': break;
    case 'E':
        if (end - at < 4 || (at[1] != 'X' && memcmp(at, "EN\r\n", 4))) return NULL;
        break;
    case 'V':
        if (end - at < 3 || at[1] != 'A' || at[2] != ' ') return NULL;
        break;
    default:
        if (*at < '0' || *at > '9') return NULL;
    }
    if (!(line = line_end(at, end - at > LONGEST_LINE ? at + LONGEST_LINE : end))) return NULL;
    if (*at != 'V') return line + 2;
    const char *word = memchr(at + 3, ' ', line - at - 3);
    long long length = number(at + 3, word ? word : line);
    if (length < 0 || length > end - line - 4) return NULL;
    at = line + 4 + length;
    return at[-2] == '\r' && at[-1] == '\n' ? at : NULL;
}

/* Where a reply of the usual kinds ends, or NULL. */
static const char *usual_end(const char *at, const char *end) {
    if (end - at > 2 && memcmp(at, "VAL", 3) && memcmp(at, "END", 3) && *at != 'S') return change_end(at, end);
    if (*at == 'S') return end - at >= 8 && !memcmp(at, "STORED\r\n", 8) ? at + 8 : NULL;
    while (!is_end(at, end)) {  /* of a retrieval of several keys there are several items */
        const char *line = *at == 'V' ? line_end(at, end) : NULL;
        if (!line || line - at < 6 || memcmp(at, "VALUE ", 6) || !(at = item_end(at, line, end)) || at == end) return NULL;
    }
    return at + END_SIZE;
}

static Field any_answered;  /* of nodes that are not known, in tests */

typedef struct { PyObject *counters; Py_ssize_t bytes; } Written;

static int add_written(Written *written) {
    if (!written->bytes) return 0;
    PyObject *before = PyObject_GetAttr(written->counters, s_bytes_written);
    PyObject *more = before ? PyLong_FromSsize_t(written->bytes) : NULL;
    PyObject *sum = more ? PyNumber_Add(before, more) : NULL;
    int failed = !sum || PyObject_SetAttr(written->counters, s_bytes_written, sum);
    Py_XDECREF(before);
    Py_XDECREF(more);
    Py_XDECREF(sum);
    written->bytes = 0;
    return failed ? -1 : 0;
}

#define FEW 64

/* Gives the request that came alone its reply, [from, to) of `data`: written at once, if nothing is to be done but that,
 * in which case `quiet` stays as it is. */
static int give(Lone *lone, PyObject *data, Py_ssize_t from, Py_ssize_t to, Written *written, int *quiet) {
    PyObject *write = lone->write, *result;
    if (!lone->alone || !write || write == Py_None || !lone->counters) {
        *quiet = 0;
        PyObject *reply = piece(data, from, to);
        result = reply ? lone_answer(lone, reply) : NULL;
        Py_XDECREF(reply);
        Py_XDECREF(result);
        return result ? 0 : -1;
    }
    lone->alone = 0;
    if (written->counters != lone->counters) {
        if (add_written(written)) return -1;
        Py_XSETREF(written->counters, Py_NewRef(lone->counters));
    }
    written->bytes += to - from;
    Py_INCREF(write);
    int failed = write_with(write, data, from, to);
    Py_DECREF(write);
    if (failed) return -1;
    if (lone->write != write && lone->executor && lone->executor != Py_None) {  /* the client does not read */
        *quiet = 0;
        PyObject *executor = Py_NewRef(lone->executor);
        result = PyObject_CallMethodNoArgs(executor, s_wrote);
        Py_DECREF(executor);
        if (!result) return -1;
        Py_DECREF(result);
    }
    return 0;
}

/* What a node was asked for several requests of a client, or for one of several keys: parts.py. */

typedef struct {
    PyObject_VAR_HEAD
    PyObject *batch, *buffer, *request;  /* the last for a retrieval of several keys */
    Py_ssize_t index, missing, have, taken;  /* taken by `join` */
    char reads;
    Py_ssize_t ends[];  /* of the replies or items in the buffer: as many as `have` */
} Part;

static PyTypeObject Part_type;
static PyObject *s_count_failures, *s_part_done, *s_progressed, *s_take, *s_appendleft;

static PyObject *part_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *batch, *request = Py_None;
    Py_ssize_t index, count;
    int reads;
    if (kwargs || !PyArg_ParseTuple(args, "Onnp|O", &batch, &index, &count, &reads, &request)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "no keywords are taken");
        return NULL;
    }
    if (count < 1 || count > 1 << 20 || index < 0 || index > 255 || (request != Py_None && !PyBytes_CheckExact(request)))
        return PyErr_Format(PyExc_ValueError, "the index or the count is too large, or the request is not bytes");
    Part *self = PyObject_NewVar(Part, type, count);
    if (!self) return NULL;
    self->batch = Py_NewRef(batch);
    self->buffer = NULL;
    self->request = request == Py_None ? NULL : Py_NewRef(request);
    self->index = index;
    self->missing = self->request ? 1 : count;
    self->have = self->taken = 0;
    self->reads = (char)reads;
    return (PyObject *)self;
}

static void part_dealloc(Part *self) {
    Py_XDECREF(self->batch);
    Py_XDECREF(self->buffer);
    Py_XDECREF(self->request);
    PyObject_Free(self);
}

/* Adds what begins with `from` in `data` and ends at each of `ends`: one after the other. */
static int part_add(Part *self, PyObject *data, Py_ssize_t from, const Py_ssize_t *ends, Py_ssize_t count) {
    PyObject *more = from == 0 && ends[count - 1] == PyBytes_GET_SIZE(data)
        ? Py_NewRef(data) : PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + from, ends[count - 1] - from);
    if (!more) return -1;
    Py_ssize_t before = self->buffer ? PyBytes_GET_SIZE(self->buffer) : 0;
    if (self->buffer) {
        PyBytes_ConcatAndDel(&self->buffer, more);
        if (!self->buffer) {
            self->buffer = PyBytes_FromStringAndSize(NULL, 0);  /* which needs no memory */
            for (Py_ssize_t i = 0; i < self->have; i++) self->ends[i] = 0;
            return -1;
        }
    } else self->buffer = more;
    for (Py_ssize_t i = 0; i < count; i++) self->ends[self->have++] = before + ends[i] - from;
    self->missing -= count;
    return 0;
}

static int call(PyObject *on, PyObject *name) {
    PyObject *result = PyObject_CallMethodNoArgs(on, name);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Takes the reply to a retrieval of several keys, one item for each; returns whether it is such. */
static int part_items(Part *self, PyObject *data, Py_ssize_t from, Py_ssize_t to) {
    const char *start = PyBytes_AS_STRING(data), *at = start + from, *end = start + to - END_SIZE;
    const char *key = PyBytes_AS_STRING(self->request), *keys_end = key + PyBytes_GET_SIZE(self->request) - 2;
    if (end < at || memcmp(end, END, END_SIZE)) return 0;
    key += 4;  /* "get " */
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        if (key >= keys_end) return 0;
        const char *next = memchr(key, ' ', keys_end - key);
        if (!next) next = keys_end;
        Py_ssize_t length = next - key;
        if (end - at > 6 + length && !memcmp(at, "VALUE ", 6) && !memcmp(at + 6, key, length) && at[6 + length] == ' ') {
            const char *line = line_end(at, end);
            if (!line || !(at = item_end(at, line, end))) return 0;
        }
        self->ends[i] = at - start - from;
        key = next + 1;
    }
    if (at != end || !(self->buffer = piece(data, from, to))) return 0;
    self->have = Py_SIZE(self);
    return 1;
}

static int part_whole(Part *self, PyObject *reply, int failed) {
    PyObject *index = PyLong_FromSsize_t(self->index);
    PyObject *args[] = {self->batch, index, reply, failed ? Py_True : Py_False};
    PyObject *result = index ? PyObject_VectorcallMethod(s_take, args, 4, NULL) : NULL;
    Py_XDECREF(index);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Takes `count` replies or, of several keys, one; what remains to be told is told to the batch. */
static int part_receive(Part *self, PyObject *data, Py_ssize_t from, const Py_ssize_t *ends, Py_ssize_t count) {
    if (self->request) {
        self->missing = 0;
        if (part_items(self, data, from, *ends)) return call(self->batch, s_part_done);
        if (PyErr_Occurred()) return -1;
        PyObject *reply = piece(data, from, *ends);
        int failed = !reply || part_whole(self, reply, 0);
        Py_XDECREF(reply);
        return failed ? -1 : 0;
    }
    if (part_add(self, data, from, ends, count)) return -1;
    return self->missing ? 0 : call(self->batch, s_part_done);
}

static PyObject *part_answer(Part *self, PyObject *reply) {
    if (!PyBytes_CheckExact(reply) || !self->missing) return PyErr_Format(PyExc_ValueError, "bytes are needed, or no reply is missing");
    Py_ssize_t end = PyBytes_GET_SIZE(reply);
    if (part_receive(self, reply, 0, &end, 1)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *part_fail(Part *self, PyObject *error) {
    if (!PyBytes_CheckExact(error) || !self->missing) return PyErr_Format(PyExc_ValueError, "bytes are needed, or no reply is missing");
    if (self->request) {
        self->missing = 0;
        if (part_whole(self, error, 1)) return NULL;
        Py_RETURN_NONE;
    }
    PyObject *number = PyLong_FromSsize_t(self->missing);
    PyObject *result = number ? PyObject_CallMethodOneArg(self->batch, s_count_failures, number) : NULL;
    Py_XDECREF(number);
    if (!result) return NULL;
    Py_DECREF(result);
    Py_ssize_t end = PyBytes_GET_SIZE(error);
    while (self->missing) if (part_add(self, error, 0, &end, 1)) return NULL;
    if (call(self->batch, s_part_done)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *part_pieces(Part *self, PyObject *ignored) {
    PyObject *found = PyList_New(self->have);
    for (Py_ssize_t i = 0; found && i < self->have; i++) {
        Py_ssize_t from = i ? self->ends[i - 1] : 0;
        PyObject *one = PyBytes_FromStringAndSize(PyBytes_AS_STRING(self->buffer) + from, self->ends[i] - from);
        if (!one) Py_CLEAR(found);
        else PyList_SET_ITEM(found, i, one);
    }
    return found;
}

/* The bytes of what has come in and was not joined. */
static PyObject *part_held(Part *self, PyObject *ignored) {
    Py_ssize_t end = self->have ? self->ends[self->have - 1] : 0, sent = self->taken ? self->ends[self->taken - 1] : 0;
    return PyLong_FromSsize_t(end - sent);
}

static PyObject *part_discard(Part *self, PyObject *ignored) {
    if (self->buffer) {
        PyObject *nothing = PyBytes_FromStringAndSize(NULL, 0);
        if (!nothing) return NULL;
        Py_SETREF(self->buffer, nothing);
    }
    for (Py_ssize_t i = 0; i < self->have; i++) self->ends[i] = 0;
    Py_RETURN_NONE;
}

static PyMethodDef part_methods[] = {
    {"answer", (PyCFunction)part_answer, METH_O, "Take a reply."},
    {"fail", (PyCFunction)part_fail, METH_O, "Take the error that stands for each missing reply."},
    {"pieces", (PyCFunction)part_pieces, METH_NOARGS, "The replies or items that there are."},
    {"held", (PyCFunction)part_held, METH_NOARGS, "Return the bytes of replies that are there and were not joined."},
    {"discard", (PyCFunction)part_discard, METH_NOARGS, "Have the replies that are there be empty."},
    {NULL},
};
static PyMemberDef part_members[] = {
    {"batch", T_OBJECT_EX, offsetof(Part, batch), READONLY, NULL},
    {"missing", T_PYSSIZET, offsetof(Part, missing), READONLY, NULL},
    {"have", T_PYSSIZET, offsetof(Part, have), READONLY, NULL},
    {"request", T_OBJECT, offsetof(Part, request), READONLY, NULL},
    {"reads", T_BOOL, offsetof(Part, reads), READONLY, NULL},
    {NULL},
};
static PyTypeObject Part_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.proxy._native.Part",
    .tp_basicsize = sizeof(Part),
    .tp_itemsize = sizeof(Py_ssize_t),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Receives a node's replies.",
    .tp_new = part_new,
    .tp_dealloc = (destructor)part_dealloc,
    .tp_methods = part_methods,
    .tp_members = part_members,
};

/* The pieces of parts in an order that names, for each piece, its part; as many as there are. */
static PyObject *join(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t begin = count == 4 ? PyLong_AsSsize_t(args[2]) : -1, number, total = 0, i, parts, starts[256];
    if (begin < 0 || !PyBytes_CheckExact(args[0]) || !PyList_CheckExact(args[1]) || !PyBytes_CheckExact(args[3])
        || begin > (number = PyBytes_GET_SIZE(args[0])) || (parts = PyList_GET_SIZE(args[1])) > 256)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "bytes, a list, a position and bytes are needed");
    const unsigned char *order = (const unsigned char *)PyBytes_AS_STRING(args[0]);
    PyObject **list = PySequence_Fast_ITEMS(args[1]);
    for (i = 0; i < parts; i++) {
        if (!Py_IS_TYPE(list[i], &Part_type)) return PyErr_Format(PyExc_TypeError, "parts are needed");
        starts[i] = ((Part *)list[i])->taken;
    }
    for (i = begin; i < number; i++) {
        Part *part = order[i] < parts ? (Part *)list[order[i]] : NULL;
        if (!part || part->taken == part->have) break;
        total += part->ends[part->taken] - (part->taken ? part->ends[part->taken - 1] : 0);
        part->taken++;
    }
    number = i;
    Py_ssize_t tail = PyBytes_GET_SIZE(args[3]);
    PyObject *result = PyBytes_FromStringAndSize(NULL, total + tail);
    char *to = result ? PyBytes_AS_STRING(result) : NULL;
    for (i = begin; result && i < number; i++) {
        Part *part = (Part *)list[order[i]];
        Py_ssize_t at = starts[order[i]]++, from = at ? part->ends[at - 1] : 0;
        memcpy(to, PyBytes_AS_STRING(part->buffer) + from, part->ends[at] - from);
        to += part->ends[at] - from;
    }
    if (!result) return NULL;
    memcpy(to, PyBytes_AS_STRING(args[3]), tail);
    return Py_BuildValue("(Nn)", result, number);
}

/* Requests by their nodes. */
typedef struct { PyObject *node; Py_ssize_t count, size; char *to; } Share;

static int share_of(Share *shares, int *known, PyObject *node) {
    int at = 0;
    while (at < *known && shares[at].node != node) at++;
    if (at == *known) {
        if (at == MOST_OWNERS) return -1;
        shares[(*known)++] = (Share){node, 0, 0, NULL};
    }
    return at;
}

/* A list of each node, what it is sent, and the number of its requests, with `extra` bytes around these. */
static PyObject *of_shares(Share *shares, int known, Py_ssize_t extra) {
    PyObject *found = PyList_New(known);
    for (int i = 0; found && i < known; i++) {
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, shares[i].size + extra);
        PyObject *one = bytes ? Py_BuildValue("(ONn)", shares[i].node, bytes, shares[i].count) : NULL;
        if (!one) Py_CLEAR(found);
        else {
            shares[i].to = PyBytes_AS_STRING(bytes);
            PyList_SET_ITEM(found, i, one);
        }
    }
    return found;
}

static PyObject *split(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t most = count == 6 ? PyLong_AsSsize_t(args[3]) : -1;
    long safe = count == 6 ? PyLong_AsLong(args[4]) : -1;
    if (PyErr_Occurred()) return NULL;
    if (count != 6 || !PyBytes_CheckExact(args[0]) || !PyDict_Check(args[1]) || !PyDict_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "bytes, two dictionaries, two numbers and a type are needed");
    if (most > FEW) most = FEW;
    const char *start = PyBytes_AS_STRING(args[0]), *end = start + PyBytes_GET_SIZE(args[0]), *at = start;
    Share shares[MOST_OWNERS];
    unsigned char order[FEW];
    Py_ssize_t froms[FEW], number = 0;
    int known = 0, reads = 1;
    while (at < end && number < most) {
        PyObject *key, *table, *node;
        const char *line = line_end(at, end), *after = line ? line + 2 : NULL;
        if (!line) break;
        if (*at == 'g' && after - at <= 256 + 8) {
            key = PyBytes_FromStringAndSize(at, after - at);
            table = args[1];
        } else {
            const char *word = NULL;
            if (!(after = set_end(at, line, end, safe, &word))) break;
            key = PyBytes_FromStringAndSize(at + 4, word - at - 4);
            table = args[2];
        }
        node = key ? PyDict_GetItemWithError(table, key) : NULL;
        Py_XDECREF(key);
        if (!node && PyErr_Occurred()) return NULL;
        if (!node || (PyObject *)Py_TYPE(node) != args[5]) break;
        int share = share_of(shares, &known, node);
        if (share < 0) break;
        if (table == args[2]) reads = 0;
        shares[share].count++;
        shares[share].size += after - at;
        order[number] = (unsigned char)share;
        froms[number++] = at - start;
        at = after;
    }
    if (number < 2) Py_RETURN_NONE;
    PyObject *found = of_shares(shares, known, 0);
    for (Py_ssize_t i = 0; found && i < number; i++) {
        Py_ssize_t size = (i + 1 < number ? froms[i + 1] : at - start) - froms[i];
        memcpy(shares[order[i]].to, start + froms[i], size);
        shares[order[i]].to += size;
    }
    if (!found) return NULL;
    return Py_BuildValue("(Ny#nO)", found, (char *)order, number, (Py_ssize_t)(at - start), reads ? Py_True : Py_False);
}

static PyObject *split_keys(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3 || !PyBytes_CheckExact(args[0]) || !PyDict_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "bytes, a dictionary and a type are needed");
    const char *start = PyBytes_AS_STRING(args[0]), *end = start + PyBytes_GET_SIZE(args[0]) - 2, *at;
    if (end - start < 5 || memcmp(start, "get ", 4) || end[0] != '\r' || end[1] != '\n') Py_RETURN_NONE;
    Py_ssize_t number = 1, i = 0;
    for (at = start + 4; at < end; at++) if (*at == ' ') number++;
    PyObject *order = PyBytes_FromStringAndSize(NULL, number), *found = NULL;
    if (!order) return NULL;
    unsigned char *shared = (unsigned char *)PyBytes_AS_STRING(order);
    Share shares[MOST_OWNERS];
    int known = 0;
    for (at = start + 4, i = 0; i < number; i++) {
        const char *next = at < end ? memchr(at, ' ', end - at) : NULL;
        if (!next) next = end;
        PyObject *key = PyBytes_FromStringAndSize(at, next - at);
        PyObject *node = key ? PyDict_GetItemWithError(args[1], key) : NULL;
        Py_XDECREF(key);
        if (!node && PyErr_Occurred()) goto failed;
        int share = node && (PyObject *)Py_TYPE(node) == args[2] ? share_of(shares, &known, node) : -1;
        if (share < 0) {
            Py_DECREF(order);
            Py_RETURN_NONE;
        }
        shares[share].count++;
        shares[share].size += next - at + 1;
        shared[i] = (unsigned char)share;
        at = next + 1;
    }
    if (!(found = of_shares(shares, known, 5))) goto failed;  /* "get" and the end of the line */
    for (int one = 0; one < known; one++) {
        memcpy(shares[one].to, "get", 3);
        memcpy(shares[one].to + shares[one].size + 3, "\r\n", 2);
        shares[one].to += 3;
    }
    for (at = start + 4, i = 0; i < number; i++) {
        const char *next = at < end ? memchr(at, ' ', end - at) : NULL;
        if (!next) next = end;
        Share *share = &shares[shared[i]];
        *share->to++ = ' ';
        memcpy(share->to, at, next - at);
        share->to += next - at;
        at = next + 1;
    }
    return Py_BuildValue("(NN)", found, order);
failed:
    Py_DECREF(order);
    return NULL;
}

/* Gives requests their replies; returns how many bytes were taken, -1 if there are too many replies, or -2 with an error.
 * `quiet` is cleared if more may have to be done than what was. */
static Py_ssize_t hand_out_all(PyObject *node, PyObject *data, PyObject *pending, long long answered, long long last,
                               long long timed, PyObject *batch_part, int *quiet) {
    PyObject *result;
    const char *start = PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data), *at = start;
    Py_ssize_t few[FEW], *ends = few, found = 0, room = FEW;
    while (at < end) {
        const char *after = usual_end(at, end);
        if (!after) break;
        if (found == room) {
            Py_ssize_t *more = PyMem_New(Py_ssize_t, room * 4);
            if (!more) {
                if (ends != few) PyMem_Free(ends);
                PyErr_NoMemory();
                return -2;
            }
            memcpy(more, ends, room * sizeof *ends);
            if (ends != few) PyMem_Free(ends);
            ends = more;
            room *= 4;
        }
        at = after;
        ends[found++] = at - start;
    }
    Py_ssize_t taken = at - start, given = 0;
    PyObject *error[3] = {NULL, NULL, NULL};
    Written written = {NULL, 0};
    int usual = Py_IS_TYPE(node, known.node);
    if (found && answered + found > last) {
        taken = -1;
        found = 0;
    }
    if (found) {
        int failed = 0;
        if (timed && answered + found >= timed) {
            failed = !(result = PyObject_CallMethodNoArgs(node, s_note_time));
            Py_XDECREF(result);
        }
        if (failed || put_number(node, usual ? &known.answered : &any_answered, answered + found)) taken = -2;
    }
    for (Py_ssize_t i = 0; taken > 0 && i < found; i++) {
        int failed = 0;
        PyObject *receiver = usual ? PyObject_Vectorcall(known.popleft, &pending, 1, NULL)
            : PyObject_CallMethodNoArgs(pending, s_popleft);
        if (!receiver) {  /* cannot be: there are as many as requests */
            taken = -2;
            break;
        }
        int lone = Py_IS_TYPE(receiver, &Lone_type);
        if (!lone) *quiet = 0;
        if (lone) failed = give((Lone *)receiver, data, given, ends[i], &written, quiet);
        else if (Py_IS_TYPE(receiver, &Part_type)) {
            Part *part = (Part *)receiver;
            Py_ssize_t number = part->missing < found - i ? part->missing : found - i;
            if (!number) failed = 1;  /* cannot be: it would not wait */
            else {
                failed = part_receive(part, data, given, ends + i, number);
                i += number - 1;
            }
            if (!failed && part->missing) {
                failed = !(result = PyObject_CallMethodOneArg(pending, s_appendleft, receiver)) || call(part->batch, s_progressed);
                Py_XDECREF(result);
            }
        } else if ((PyObject *)Py_TYPE(receiver) == batch_part) {
            PyObject *rest = PyList_New(0);
            for (Py_ssize_t j = i; rest && j < found && j - i < FEW; j++) {
                PyObject *one = piece(data, j ? ends[j - 1] : 0, ends[j]);
                if (!one || PyList_Append(rest, one)) Py_CLEAR(rest);
                Py_XDECREF(one);
            }
            PyObject *of_part[] = {node, receiver, rest};
            result = rest ? PyObject_VectorcallMethod(s_take_some, of_part, 3, NULL) : NULL;
            Py_ssize_t number = result ? PyLong_AsSsize_t(result) : -1;
            Py_XDECREF(rest);
            Py_XDECREF(result);
            if (number < 1) failed = 1;
            else i += number - 1;
        } else {
            PyObject *reply = piece(data, given, ends[i]);
            if (!reply) failed = 1;
            else {
                failed = !(result = PyObject_CallMethodOneArg(receiver, s_answer, reply));
                Py_XDECREF(result);
            }
            Py_XDECREF(reply);
        }
        Py_DECREF(receiver);
        given = ends[i];
        if (failed && !error[0] && PyErr_Occurred()) PyErr_Fetch(&error[0], &error[1], &error[2]);
        else if (failed) PyErr_Clear();  /* the others get theirs, and the first error is raised */
    }
    if (ends != few) PyMem_Free(ends);
    if (add_written(&written)) taken = -2;
    Py_XDECREF(written.counters);
    if (error[0]) {
        PyErr_Clear();
        PyErr_Restore(error[0], error[1], error[2]);
        return -2;
    }
    return taken;
}

static PyObject *hand_out(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 7 || !PyBytes_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "a node, bytes, a queue, three numbers and a type are needed");
    long long answered = PyLong_AsLongLong(args[3]), last = PyLong_AsLongLong(args[4]), timed = PyLong_AsLongLong(args[5]);
    if (PyErr_Occurred()) return NULL;
    int quiet = 1;
    Py_ssize_t taken = hand_out_all(args[0], args[1], args[2], answered, last, timed, args[6], &quiet);
    return taken == -2 ? NULL : PyLong_FromSsize_t(taken);
}


/* What arrives, at a client's connection or at a node's: connection.py and link.py, whose methods take all that is unusual. */

typedef struct Reception Reception;

typedef struct {  /* takes the place of `data_received` in a class */
    PyObject_HEAD
    PyTypeObject *type;  /* of the protocols */
    PyObject *otherwise;  /* the method in Python */
    int (*take)(Reception *, PyObject *);  /* returns whether all is done, or -1 */
    PyTypeObject *usual;  /* of clients' executors, as whose method `take` this serves */
    PyObject *usual_take;
    Py_ssize_t longest;  /* line of a get */
    Field executor, ready_limit, counters, until, bytes_read, clock, second, last_command, out;
} Receiver;

struct Reception {  /* a receiver that is bound to a protocol */
    PyObject_HEAD
    vectorcallfunc call;
    Receiver *receiver;
    PyObject *protocol;
    Lone *lone;  /* of the executor that was seen last */
    PyObject *rest;  /* what was not taken, if some was */
};

static PyTypeObject Reception_type, Receiver_type;
static PyObject *s_lone, *s_take_input;

/* That of the client's executor; NULL if it is not the usual one, or with an error. Without a reference. */
static Lone *lone_of(Reception *b) {
    PyObject *executor = get(b->protocol, &b->receiver->executor);
    if (!executor) return NULL;
    if (!b->lone || b->lone->executor != executor) {
        Py_CLEAR(b->lone);
        if (PyObject_TypeCheck(executor, b->receiver->usual)) {
            PyObject *take = PyObject_GetAttr((PyObject *)Py_TYPE(executor), s_take_input);
            PyObject *lone = take == b->receiver->usual_take ? PyObject_GetAttr(executor, s_lone) : NULL;
            Py_XDECREF(take);
            if (lone && Py_IS_TYPE(lone, &Lone_type) && ((Lone *)lone)->executor == executor) b->lone = (Lone *)lone;
            else Py_XDECREF(lone);
        }
    }
    Py_DECREF(executor);  /* the connection has it */
    return b->lone;
}

static int note_activity(Receiver *r, PyObject *connection) {
    PyObject *clock = get(connection, &r->clock), *second = clock ? get(clock, &r->second) : NULL;
    Py_XDECREF(clock);
    return set_new(connection, &r->last_command, second);
}

static int take_from_client(Reception *b, PyObject *data) {
    Receiver *r = b->receiver;
    PyObject *connection = b->protocol, *counters;
    Lone *lone = lone_of(b);
    if (!lone || lone->alone || !lone->others) return PyErr_Occurred() ? -1 : 0;
    Py_ssize_t size = PyBytes_GET_SIZE(data), others = PyObject_Size(lone->others);
    if (others) return others < 0 ? -1 : 0;
    long long limit = get_number(connection, &r->ready_limit);
    if (limit < 0) return PyErr_Occurred() ? -1 : 0;
    if (!(counters = get(connection, &r->counters))) return -1;
    long long left = get_number(counters, &r->until) - 1;
    int taken = left == -2 && PyErr_Occurred() ? -1 : 0;
    if (left > 0) {
        PyObject *table = NULL;
        Py_INCREF(lone);
        if (size <= r->longest && (table = lone->by_line) && PyDict_Check(table)) {
            Py_INCREF(table);
            taken = take_line(lone, table, data, (PyObject *)known.node);
            Py_DECREF(table);
        }
        if (!taken && size > 4 && (table = lone->nodes) && PyDict_Check(table)) {
            Py_INCREF(table);
            if (!memcmp(PyBytes_AS_STRING(data), "set ", 4))
                taken = take_set(lone, table, data, (long)lone->most, (PyObject *)known.node);
            else if (size <= 2 * r->longest && lone->write && lone->write != Py_None)  /* else it is counted by its kind */
                taken = take_change(lone, table, data, (PyObject *)known.node);
            Py_DECREF(table);
        }
        Py_DECREF(lone);
    }
    if (taken > 0) {
        long long before = get_number(counters, &r->bytes_read);
        PyObject *out = NULL;
        if ((before < 0 && PyErr_Occurred()) || put_number(counters, &r->bytes_read, before + size)
            || put_number(counters, &r->until, left) || note_activity(r, connection)
            || !(out = get(connection, &r->out))) taken = -1;
        else if (!PyList_Check(out) || PyList_GET_SIZE(out)) {
            PyObject *result = PyObject_CallMethodNoArgs(connection, s_flush);
            if (!result) taken = -1;
            Py_XDECREF(result);
        }
        Py_XDECREF(out);
    }
    Py_DECREF(counters);
    return taken;
}

static int take_from_node(Reception *b, PyObject *data) {
    PyObject *link = b->protocol, *node = NULL, *pending = NULL, *first = NULL;
    int is = is_same(link, &known.usual, Py_True), done = -1, quiet = 1;
    if (is < 1) return is;
    if (!(node = get(link, &known.owner))) return -1;
    if (!Py_IS_TYPE(node, known.node)) { done = 0; goto end; }
    if (!(pending = get(node, &known.pending))) goto end;
    Py_ssize_t waiting = PyObject_Size(pending);
    if (waiting <= 0) { done = waiting < 0 ? -1 : 0; goto end; }
    if (!(first = PySequence_GetItem(pending, 0))) goto end;
    PyObject *type = (PyObject *)Py_TYPE(first);
    Py_DECREF(first);  /* it is compared */
    if (type == known.one_part || type == known.other_part) { done = 0; goto end; }
    long long timed = get_number(node, &known.timed), answered = get_number(node, &known.answered);
    long long last = get_number(node, &known.last_sent);
    if (timed) timed = get_number(node, &known.last_timed);
    if (PyErr_Occurred()) goto end;
    Py_ssize_t taken = hand_out_all(node, data, pending, answered, last, timed, known.one_part, &quiet);
    if (taken <= 0) { done = taken == -2 ? -1 : 0; goto end; }
    if (quiet && (is = is_same(node, &known.retired, Py_False)) < 1) {
        if (is < 0) goto end;
        quiet = 0;
    }
    if (!quiet) {
        PyObject *result = PyObject_CallMethodNoArgs(node, s_handed_out);
        Py_XDECREF(result);
        if (!result) goto end;
    }
    done = taken == PyBytes_GET_SIZE(data);
    if (!done && !(b->rest = piece(data, taken, PyBytes_GET_SIZE(data)))) done = -1;
end:
    Py_XDECREF(node);
    Py_XDECREF(pending);
    return done;
}

static PyObject *receive(PyObject *bound, PyObject *const *args, size_t flags, PyObject *names) {
    Reception *b = (Reception *)bound;
    if (PyVectorcall_NARGS(flags) != 1 || names) return PyErr_Format(PyExc_TypeError, "data_received takes one argument");
    int done = known.node && PyBytes_CheckExact(args[0]) ? b->receiver->take(b, args[0]) : 0;
    if (done > 0) Py_RETURN_NONE;
    if (done < 0) return NULL;
    PyObject *rest = b->rest;
    b->rest = NULL;
    PyObject *with[] = {b->protocol, rest ? rest : args[0]};
    PyObject *result = PyObject_Vectorcall(b->receiver->otherwise, with, 2, NULL);
    Py_XDECREF(rest);
    return result;
}

static int reception_traverse(Reception *b, visitproc visit, void *arg) {
    Py_VISIT(b->receiver);
    Py_VISIT(b->protocol);
    Py_VISIT(b->lone);
    return 0;
}

static int reception_clear(Reception *b) {
    Py_CLEAR(b->lone);  /* without the others it could not be called */
    return 0;
}

static void reception_dealloc(Reception *b) {
    PyObject_GC_UnTrack(b);
    Py_XDECREF(b->receiver);
    Py_XDECREF(b->protocol);
    Py_XDECREF(b->lone);
    Py_XDECREF(b->rest);
    Py_TYPE(b)->tp_free(b);
}

static PyTypeObject Reception_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.proxy._native.Reception",
    .tp_basicsize = sizeof(Reception),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Takes what arrives at a connection.",
    .tp_vectorcall_offset = offsetof(Reception, call),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = (traverseproc)reception_traverse,
    .tp_clear = (inquiry)reception_clear,
    .tp_dealloc = (destructor)reception_dealloc,
};

static PyObject *receiver_get(Receiver *r, PyObject *protocol, PyObject *type) {
    if (!protocol) return Py_NewRef((PyObject *)r);
    if (!r->otherwise || !PyObject_TypeCheck(protocol, r->type))
        return PyErr_Format(PyExc_TypeError, "not such a connection: %R", protocol);
    Reception *bound = PyObject_GC_New(Reception, &Reception_type);
    if (!bound) return NULL;
    bound->call = receive;
    bound->receiver = (Receiver *)Py_NewRef((PyObject *)r);
    bound->protocol = Py_NewRef(protocol);
    bound->lone = NULL;
    bound->rest = NULL;
    PyObject_GC_Track(bound);
    return (PyObject *)bound;
}

static int receiver_init(Receiver *r, PyObject *args, PyObject *kwargs) {
    PyObject *type, *executor = NULL, *counters = NULL, *clock = NULL;
    if (r->type || kwargs || !PyArg_ParseTuple(args, "O!|O!O!O!n", &PyType_Type, &type, &PyType_Type, &executor, &PyType_Type,
                                               &counters, &PyType_Type, &clock, &r->longest)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a receiver is made once, without keywords");
        return -1;
    }
    r->type = (PyTypeObject *)Py_NewRef(type);
    r->take = executor ? take_from_client : take_from_node;
    if (executor) {
        if (!clock) return PyErr_Format(PyExc_TypeError, "for clients four types are needed"), -1;
        r->usual = (PyTypeObject *)Py_NewRef(executor);
        if (!(r->usual_take = PyObject_GetAttr(executor, s_take_input))) return -1;
        struct { Field *field; PyObject *type; const char *name; } fields[] = {
            {&r->executor, type, "executor"}, {&r->ready_limit, type, "_ready_limit"}, {&r->counters, type, "_counters"},
            {&r->until, counters, "until_slow_sample"}, {&r->bytes_read, counters, "bytes_read"}, {&r->clock, type, "_clock"},
            {&r->second, clock, "second"}, {&r->last_command, type, "last_command"}, {&r->out, type, "out"}};
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
            if (find_field(fields[i].field, fields[i].type, fields[i].name)) return -1;
    }
    return (r->otherwise = PyObject_GetAttrString(type, "data_received")) ? 0 : -1;
}

static int receiver_traverse(Receiver *r, visitproc visit, void *arg) {
    Py_VISIT(r->type);
    Py_VISIT(r->usual);
    Py_VISIT(r->usual_take);
    Py_VISIT(r->otherwise);
    return 0;
}

static int receiver_clear(Receiver *r) {
    Py_CLEAR(r->type);
    Py_CLEAR(r->usual);
    Py_CLEAR(r->usual_take);
    Py_CLEAR(r->otherwise);
    return 0;
}

static void receiver_dealloc(Receiver *r) {
    PyObject_GC_UnTrack(r);
    receiver_clear(r);
    Field *fields[] = {&r->executor, &r->ready_limit, &r->counters, &r->until, &r->bytes_read, &r->clock, &r->second,
                       &r->last_command, &r->out};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) Py_XDECREF(fields[i]->name);
    Py_TYPE(r)->tp_free(r);
}

static PyTypeObject Receiver_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.proxy._native.Receiver",
    .tp_basicsize = sizeof(Receiver),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "The method data_received of connections.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)receiver_init,
    .tp_descr_get = (descrgetfunc)receiver_get,
    .tp_traverse = (traverseproc)receiver_traverse,
    .tp_clear = (inquiry)receiver_clear,
    .tp_dealloc = (destructor)receiver_dealloc,
};

static PyObject *know(PyObject *self, PyObject *args) {
    PyObject *node, *link, *deque, *one, *other, *monotonic, *monotonic_ns, *timing, *lease;
    long long many;
    double between, between_its;
    if (!PyArg_ParseTuple(args, "O!O!O!OOO!O!OOLdd", &PyType_Type, &node, &PyType_Type, &link, &PyType_Type, &deque, &one,
                          &other, &PyType_Type, &timing, &PyType_Type, &lease, &monotonic, &monotonic_ns, &many, &between, &between_its)) return NULL;
    struct { Field *field; PyObject *type; const char *name; } fields[] = {
        {&known.limited, node, "_limited"}, {&known.queue, node, "_queue"}, {&known.pending, node, "_pending"},
        {&known.answered, node, "_answered"}, {&known.last_sent, node, "_last_sent"}, {&known.timed, node, "_timed"},
        {&known.last_timed, node, "_last_timed"}, {&known.until, node, "_until"}, {&known.lease, node, "_lease"},
        {&known.lease_until, lease, "until"}, {&known.scheduler, node, "_scheduler"}, {&known.flusher, node, "_flusher"},
        {&known.flush_due, node, "_flush_due"}, {&known.timer, node, "_timer"}, {&known.of_node, node, "_link"},
        {&known.in_batches, node, "_in_batches"}, {&known.queued, node, "_queued"}, {&known.timing, node, "_timing"},
        {&known.due, timing, "due"}, {&known.next_timed, node, "_next_timed"}, {&known.retired, node, "_retired"},
        {&known.usual, link, "_usual"}, {&known.owner, link, "_owner"}, {&known.paused, link, "paused"},
        {&known.write, link, "write"}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (find_field(fields[i].field, fields[i].type, fields[i].name)) return NULL;
    PyObject *append = PyObject_GetAttr(deque, s_append), *popleft = append ? PyObject_GetAttr(deque, s_popleft) : NULL;
    if (!popleft) {
        Py_XDECREF(append);
        return NULL;
    }
    Py_XSETREF(known.append, append);
    Py_XSETREF(known.popleft, popleft);
    Py_XSETREF(known.node, (PyTypeObject *)Py_NewRef(node));
    Py_XSETREF(known.link, (PyTypeObject *)Py_NewRef(link));
    Py_XSETREF(known.one_part, Py_NewRef(one));
    Py_XSETREF(known.other_part, Py_NewRef(other));
    Py_XSETREF(known.monotonic, Py_NewRef(monotonic));
    Py_XSETREF(known.monotonic_ns, Py_NewRef(monotonic_ns));
    known.many_pending = many;
    known.between_times = between;
    known.between_its_times = between_its;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"join", (PyCFunction)(void (*)(void))join, METH_FASTCALL, "The pieces of parts in order."},
    {"split", (PyCFunction)(void (*)(void))split, METH_FASTCALL, "Requests by their nodes."},
    {"split_keys", (PyCFunction)(void (*)(void))split_keys, METH_FASTCALL, "Keys by their nodes."},
    {"know", (PyCFunction)know, METH_VARARGS, "Find the attributes of nodes and of their connections."},
    {"hand_out", (PyCFunction)(void (*)(void))hand_out, METH_FASTCALL, "Gives requests their replies."},
    {"split_gets", (PyCFunction)split_gets, METH_O, "The replies to gets, and where they end."},
    {"items", (PyCFunction)(void (*)(void))items, METH_FASTCALL, "The items of a reply, and where they end."},
    {"gather", (PyCFunction)(void (*)(void))gather, METH_FASTCALL, "Values by their owners."},
    {"interleave", (PyCFunction)(void (*)(void))interleave, METH_FASTCALL, "Pieces in the order of their owners."},
    {NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "Framing in C.", -1, methods};
static int intern_names(void) {
    struct { PyObject **to; const char *name; } all[] = {
        {&s_answer, "answer"}, {&s_append, "append"}, {&s_bytes_written, "bytes_written"}, {&s_fail, "fail"},
        {&s_note_time, "_note_time"}, {&s_popleft, "popleft"}, {&s_send, "send"}, {&s_take_some, "_take_some"},
        {&s_wrote, "wrote"}, {&s_write, "write"}, {&s_unsent, "get_write_buffer_size"}, {&s_together, "_together"},
        {&s_call_together, "call_together"}, {&s_flush, "_flush"}, {&s_handed_out, "_handed_out"}, {&s_lone, "lone"},
        {&s_take_input, "take"},
        {&s_appendleft, "appendleft"}, {&s_count_failures, "count_failures"}, 
        {&s_part_done, "part_done"}, {&s_progressed, "progressed"}, {&s_take, "take_reply"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!*all[i].to && !(*all[i].to = PyUnicode_InternFromString(all[i].name))) return -1;
    any_answered = (Field){PyUnicode_InternFromString("_answered"), -1};
    PyTypeObject *types[] = {&Lone_type, &Part_type, &Writer_type, &Flusher_type, &Reception_type, &Receiver_type};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) if (PyType_Ready(types[i])) return -1;
    return any_answered.name ? 0 : -1;
}

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *m = intern_names() ? NULL : PyModule_Create(&module);
    PyObject *names = m ? Py_BuildValue("[sssssssssssssss]", "VERSION", "Flusher", "Lone", "Part", "Receiver", "Writer",
                                        "gather", "hand_out", "interleave", "items", "join", "know", "split", "split_gets",
                                        "split_keys") : NULL;
    if (!names || PyModule_AddObjectRef(m, "__all__", names) || PyModule_AddIntMacro(m, VERSION)
        || PyModule_AddObjectRef(m, "Lone", (PyObject *)&Lone_type)
        || PyModule_AddObjectRef(m, "Flusher", (PyObject *)&Flusher_type)
        || PyModule_AddObjectRef(m, "Receiver", (PyObject *)&Receiver_type)
        || PyModule_AddObjectRef(m, "Writer", (PyObject *)&Writer_type)
        || PyModule_AddObjectRef(m, "Part", (PyObject *)&Part_type)) Py_CLEAR(m);
    Py_XDECREF(names);
    return m;
}
