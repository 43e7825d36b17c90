/* Runs of commands in their usual form, carried out on a table in memory: the counterpart of the short commands in
Python (short_commands.py, short_binary_commands.py, engine/plain.py), which say more about each of them.

A `Runner` takes a client's input and carries out its commands in order. It changes items, the table and the counters
exactly as its counterpart does, and does nothing until it is certain that it can complete a command. Commands that
are not plain go to the short commands in Python, one at a time; a command that these do not handle either ends the
run, and the parser takes over there. The tests compare both implementations.

Items, counters and the table are objects of Python. Where they have slots, these are read and written at
their offsets, which are looked up once; in a build by mypyc, or without slots, as attributes. References to
an item's contents are borrowed for as long as nothing else can run: until the next call into Python.

With RECORDS, it is compiled once more for a table shared by several processes: records/_native.c.

This file has the run itself and the type. The commands are in commands/, by protocol; the operations on items are in
objects/ or, with RECORDS, in records/. Each of those files uses the ones included before it. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>
#include "../../core/digits.h"
#include "../../core/slots.h"

#define VERSION 7  /* of the interface: a module compiled for another version is not used */

#include "commands/common.h"
#ifdef RECORDS
#include "records/runner.h"
#else
#include "objects/runner.h"
#endif

#include "commands/attributes.h"
#include "commands/counters.h"
#include "commands/clock.h"
#include "commands/replies.h"
#include "commands/lines.h"
#include "commands/frames.h"
#include "commands/arithmetic.h"
#include "commands/ahead.h"

#ifdef RECORDS
#include "records/items.h"
#else
#include "objects/numbers.h"
#include "objects/table.h"
#include "objects/item.h"
#include "objects/ghost.h"
#include "objects/queues.h"
#include "objects/eviction.h"
#include "objects/inserting.h"
#include "objects/storing.h"
#include "objects/changing.h"
#include "objects/reading.h"
#endif

#include "commands/text.h"
#include "commands/binary.h"

/* Takes over the replies of the counterpart, in order. Large ones are not copied. */
static int take_replies(Runner *r) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(r->replies); i++) {
        PyObject *part = PyList_GET_ITEM(r->replies, i);
        int small = PyBytes_CheckExact(part) && PyBytes_GET_SIZE(part) <= MOST_REPLIES / 8;
        int done = small ? make_room(r, PyBytes_GET_SIZE(part)) : STOP;
        if (done == DONE) append(r, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part));
        else if (done < 0 || flush_replies(r) < 0 || PyList_Append(r->out, part)) return ERROR;
    }
    return PyList_SetSlice(r->replies, 0, PY_SSIZE_T_MAX, NULL) ? ERROR : DONE;
}

/* Passes the command at r->position to the counterpart; STOP if it does not handle it either. */
static int ask(Runner *r, PyObject *counterpart, PyObject *data, Py_ssize_t *next) {
    PyObject *position = settle(r) < 0 ? NULL : PyObject_CallFunction(counterpart, "On", data, r->position);
    if (!position) return ERROR;
    *next = PyLong_AsSsize_t(position);
    Py_DECREF(position);
    if (*next < 0 || take_replies(r) < 0) return ERROR;
    return *next > 0 ? follow(r) < 0 ? ERROR : DONE : STOP;
}

/* Where the next turn begins, if this one is used up and enough input has arrived; else 0. The parser checks the same. */
static Py_ssize_t begin_of_next(Runner *r, const char *at, const char *end, int binary) {
    Packet packet;
    if (r->served < r->at_most || at == end) return 0;
    return (binary ? read_packet(at, end, &packet, &at) : memchr(at, '\n', end - at) != NULL) ? r->position : 0;
}

static PyObject *run(Runner *r, PyObject *const *args, Py_ssize_t count, int binary) {
    if (count < 2 || count > 3 || !PyBytes_CheckExact(args[0]) || !PyList_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "expected bytes and a list");
    PyObject *data = args[0], *reply = NULL;
    if (r->busy || !r->fast_read) return PyErr_Format(PyExc_RuntimeError, "a run is already in progress, or the runner is not initialized");
    Py_ssize_t begin = count > 2 ? PyLong_AsSsize_t(args[2]) : 0;
    if (begin < 0 || begin > PyBytes_GET_SIZE(data))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "the position is out of range");
    r->position = begin;
    r->served = r->next_turn = r->missing = 0;
    if (!PyObject_IsTrue(PyList_GET_ITEM(r->fast_read, 0))) Py_RETURN_NONE;  /* commands are observed */
    long long until = number_of(get(r->counters, &r->until));
    if (until <= 1) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);  /* this read is sampled */
    int done = follow(r);
    if (done != DONE) return done < 0 ? NULL : Py_NewRef(Py_None);
    const char *start = PyBytes_AS_STRING(data), *after = start, *end = start + PyBytes_GET_SIZE(data);
    r->busy = 1;
    r->out = args[1];
    r->reply_size = 0;
    r->looks = (char)has_many(r);
    r->looked = start;
    while (start + r->position < end && r->served < r->at_most) {
        Packet packet;
        if (r->reply_size > MOST_REPLIES / 2 && (done = flush_replies(r)) != DONE) break;
        Py_ssize_t before = r->reply_size;
        done = can_run(r) ? make_room(r, 2048) : STOP;
        /* Not after an error, which would be cleared, nor again where few keys were found. */
        if (r->looks && done == DONE && r->ahead_next == r->ahead_count && start + r->position >= r->looked
            && (r->served || may_be_several(start + r->position, end, binary)))
            look_ahead(r, start + r->position, end, binary, 0);
        if (binary) {
            int whole = read_packet(start + r->position, end, &packet, &after);
            if (!whole) {
                r->missing = missing_of_packet(r, start + r->position, end);
                break;
            }
            if (done == DONE) done = binary_command(r, &packet);
        } else if (done == DONE) done = text_command(r, start + r->position, end, &after);
        Py_ssize_t next = after - start;
        if (done == STOP) r->reply_size = before;
        if (done == STOP) done = ask(r, binary ? r->binary_fallback : r->text_fallback, data, &next);
        if (done != DONE) break;
        r->position = next;
        r->served++;
        if (r->whole) break;
    }
    if (done == DONE) r->next_turn = begin_of_next(r, start + r->position, end, binary);
    Py_CLEAR(r->line);
    forget_ahead(r);
    r->busy = 0;
    if (!begin && r->position) count_of(r, N_bytes_read, r->position);
    if (done >= 0) {
        int all = start + r->position == end;
        if (all) done = put_number(r->counters, &r->until, until - 1);
        if (r->whole) reply = r->whole;
        else if (all && !PyList_GET_SIZE(r->out)) reply = PyBytes_FromStringAndSize(r->reply, r->reply_size);
        else if (flush_replies(r) == DONE) reply = Py_NewRef(Py_None);
        r->whole = NULL;
        if (reply && reply != Py_None) count_of(r, N_bytes_written, PyBytes_GET_SIZE(reply));
        if (done < 0) Py_CLEAR(reply);
    }
    Py_CLEAR(r->whole);
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (settle(r) < 0 || add_counts(r) < 0) Py_CLEAR(reply);
    /* The replies of a counterpart that failed must not go to the next client. */
    if (PyList_GET_SIZE(r->replies) && PyList_SetSlice(r->replies, 0, PY_SSIZE_T_MAX, NULL)) Py_CLEAR(reply);
    if (type) PyErr_Restore(type, value, trace);
    r->out = NULL;
    return reply;
}

static PyObject *Runner_text(Runner *r, PyObject *const *args, Py_ssize_t count) { return run(r, args, count, 0); }
static PyObject *Runner_binary(Runner *r, PyObject *const *args, Py_ssize_t count) { return run(r, args, count, 1); }

#ifdef RECORDS
#include "records/init.h"
#else
#include "objects/init.h"
#endif

#define VISIT(name) Py_VISIT(r->name);
#define CLEAR(name) Py_CLEAR(r->name);

static int Runner_traverse(Runner *r, visitproc visit, void *arg) {
    REFERENCES(VISIT)
    return 0;
}

static int Runner_clear(Runner *r) {
    REFERENCES(CLEAR)
    return 0;
}

static void Runner_dealloc(Runner *r) {
    PyObject_GC_UnTrack(r);
    Runner_clear(r);
    Field *fields[] = {FIELDS(r)};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) Py_CLEAR(fields[i]->name);
    for (int i = 0; i < COUNTED; i++) Py_CLEAR(r->counter[i].name);
    PyMem_Free(r->reply);
#ifdef RECORDS
    PyMem_Free(r->copy);
#else
    for (int i = 0; i < NUMBERS; i++) Py_CLEAR(r->number[i].name);
    PyMem_Free(r->gone);
#endif
    Py_TYPE(r)->tp_free(r);
}

static PyMethodDef Runner_methods[] = {
    {"text", (PyCFunction)(void (*)(void))Runner_text, METH_FASTCALL, "Execute commands of the text protocol."},
    {"binary", (PyCFunction)(void (*)(void))Runner_binary, METH_FASTCALL, "Execute commands of the binary protocol."},
    {NULL},
};
static PyMemberDef Runner_members[] = {
    {"position", T_PYSSIZET, offsetof(Runner, position), READONLY, "where the last run ended"},
    {"served", T_PYSSIZET, offsetof(Runner, served), READONLY, "number of commands that it executed"},
    {"next_turn", T_PYSSIZET, offsetof(Runner, next_turn), READONLY, "where the next turn begins, if the run used up this one"},
    {"missing", T_PYSSIZET, offsetof(Runner, missing), READONLY, "bytes that complete the next command, if it stores a value"},
    {NULL},
};
static PyTypeObject RunnerType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = MODULE ".Runner", .tp_basicsize = sizeof(Runner),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, .tp_new = PyType_GenericNew, .tp_init = (initproc)Runner_init,
    .tp_dealloc = (destructor)Runner_dealloc, .tp_traverse = (traverseproc)Runner_traverse, .tp_clear = (inquiry)Runner_clear,
    .tp_methods = Runner_methods, .tp_members = Runner_members, .tp_doc = "Executes runs of commands; see runner.py.",
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "Runs of commands in C.", -1, NULL};
PyMODINIT_FUNC PyInit__native(void) {
#ifndef RECORDS
    if (dicts_known < 0 && (dicts_known = knows_dicts()) < 0) return NULL;
#endif
    if (PyType_Ready(&RunnerType)) return NULL;
    PyObject *m = PyModule_Create(&module), *names = m ? Py_BuildValue("[ss]", "VERSION", "Runner") : NULL;
    if (!names || PyModule_AddObjectRef(m, "__all__", names) || PyModule_AddIntMacro(m, VERSION)
        || PyModule_AddObjectRef(m, "Runner", (PyObject *)&RunnerType)) Py_CLEAR(m);
    Py_XDECREF(names);
    return m;
}
