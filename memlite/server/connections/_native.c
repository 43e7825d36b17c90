/* Input of a connection whose commands a runner carries out: the counterpart of `Connection.receive_by_runner`; see there.

A `Receiver` takes the place of `data_received` in a class. Bound to a connection, it passes the input to the runner and the
reply to the transport. Input that the runner leaves, and all input while there is no runner, goes to the methods in Python.
Called without input, it takes the connection's next turn (turns.h).
It is stateless: the state of a connection is stored in the connection. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stddef.h>
#include <structmember.h>
#include "../../core/sending.h"
#include "../../core/slots.h"

#define VERSION 5  /* of the interface: a module compiled for another version is not used */

enum { MOST_TRANSPORTS = 4, UNKNOWN = -2, NONE = -1 };

typedef struct {
    PyObject_HEAD
    PyObject *type, *clock_type;  /* of connections, and of their clocks */
    PyObject *otherwise;  /* the method in Python */
    PyObject *descriptor;  /* returns the file descriptor of a transport's socket for direct writes; see native_receiver.py */
    PyObject *spare;  /* an empty list for replies, or NULL */
    PyObject *other;  /* a transport type without such a socket, cached because TLS binds the receiver for each read */
    PyObject *serving, *yielded;  /* states */
    Py_ssize_t full_read;  /* bytes */
    PyObject *serve_rest, *write, *take_turn, *resume_reading, *is_closing, *call_together, *slow_down,
        *own_executor, *share_executor, *keep;  /* names of methods */
    PyObject *next_turn, *intake, *scheduler;  /* names of other attributes */
    /* Types of transports with such sockets, and their method that returns the number of unsent bytes. */
    struct { PyTypeObject *type; PyObject *unsent; } plain[MOST_TRANSPORTS];
    Field run, out, clock, second, last_command, transport, state;
    Field counters, services, pending_input, begin, held, all_held, unsent, stream, writable;
    Field until_slow_sample, bytes_read, bytes_written, conn_yields;
} Receiver;

typedef struct {  /* a receiver that is bound to a connection */
    PyObject_HEAD
    vectorcallfunc call;
    Receiver *receiver;
    PyObject *connection;
    int fd;  /* of its socket; NONE if replies have to pass through the transport; UNKNOWN before the first reply */
} Reception;

static PyObject *call(PyObject *function, PyObject *one, PyObject *two) {
    PyObject *arguments[] = {one, two};
    return PyObject_Vectorcall(function, arguments, 2, NULL);
}

static PyObject *call_method(PyObject *owner, PyObject *name, PyObject *argument) {
    PyObject *arguments[] = {owner, argument};
    return PyObject_VectorcallMethod(name, arguments, 2, NULL);
}

static int note_activity(Receiver *r, PyObject *connection) {
    PyObject *clock = get(connection, &r->clock);
    if (!clock) return -1;
    int known = PyObject_TypeCheck(clock, (PyTypeObject *)r->clock_type);
    PyObject *second = known ? get(clock, &r->second) : PyObject_GetAttr(clock, r->second.name);
    Py_DECREF(clock);
    return set_new(connection, &r->last_command, second);
}

/* Determines whether replies can bypass a transport. */
static int know_transport(Receiver *r, Reception *b, PyObject *transport) {
    b->fd = NONE;
    if (r->other == (PyObject *)Py_TYPE(transport)) return 0;
    PyObject *number = PyObject_CallOneArg(r->descriptor, transport);
    if (number == Py_None) {
        Py_DECREF(number);
        Py_XSETREF(r->other, Py_NewRef((PyObject *)Py_TYPE(transport)));
        return 0;
    }
    long fd = number ? PyLong_AsLong(number) : NONE;
    Py_XDECREF(number);
    if (fd < 0 || fd > INT_MAX) return PyErr_Occurred() ? -1 : 0;
    int i = 0;
    while (i < MOST_TRANSPORTS && r->plain[i].type && r->plain[i].type != Py_TYPE(transport)) i++;
    if (i == MOST_TRANSPORTS) return 0;
    if (!r->plain[i].type) {
        if (!(r->plain[i].unsent = PyObject_GetAttrString((PyObject *)Py_TYPE(transport), "get_write_buffer_size"))) return -1;
        r->plain[i].type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(transport));
    }
    b->fd = (int)fd;
    return 0;
}

/* Sends a reply as the transport would, unless the transport has unsent data; returns how many bytes were sent. */
static Py_ssize_t send_at_once(Receiver *r, Reception *b, PyObject *transport, PyObject *reply) {
    if (b->fd == UNKNOWN && know_transport(r, b, transport)) return -1;
    if (b->fd < 0 || !PyBytes_CheckExact(reply) || PyBytes_GET_SIZE(reply) > MOST_AT_ONCE) return 0;
    int i = 0;
    while (i < MOST_TRANSPORTS && r->plain[i].type != Py_TYPE(transport)) i++;
    if (i == MOST_TRANSPORTS) return 0;
    return send_now(b->fd, transport, r->plain[i].unsent, PyBytes_AS_STRING(reply), PyBytes_GET_SIZE(reply));
}

static PyObject *send_reply(Receiver *r, Reception *b, PyObject *reply) {
    PyObject *transport = get(b->connection, &r->transport), *written = NULL;
    if (!transport) return NULL;
    Py_ssize_t sent = send_at_once(r, b, transport, reply);
    if (!sent) written = call_method(transport, r->write, reply);
    else if (sent == PyBytes_GET_SIZE(reply)) written = Py_NewRef(Py_None);
    else if (sent > 0) {
        PyObject *rest = PyBytes_FromStringAndSize(PyBytes_AS_STRING(reply) + sent, PyBytes_GET_SIZE(reply) - sent);
        if (rest) written = call_method(transport, r->write, rest);
        Py_XDECREF(rest);
    }
    Py_DECREF(transport);
    return written;
}

static int is(PyObject *owner, const Field *field, PyObject *expected) {
    PyObject *value = get(owner, field);
    if (!value) return -1;
    Py_DECREF(value);
    return value == expected;
}

/* Returns the list for replies not yet written: the connection's, or the receiver's while the connection has none. */
static PyObject *list_for_replies(Receiver *r, PyObject *connection) {
    PyObject *out = get(connection, &r->out);
    if (out != Py_None) return out;
    Py_SETREF(out, r->spare ? r->spare : PyList_New(0));
    r->spare = NULL;
    return out;
}

/* Gives the connection this list and an executor that appends to it, unless it has them already. */
static int keep_list(Receiver *r, PyObject *connection, PyObject *out) {
    int missing = is(connection, &r->out, Py_None);
    if (missing < 1) return missing;
    PyObject *done = set_new(connection, &r->out, Py_NewRef(out)) ? NULL : PyObject_CallMethodNoArgs(connection, r->own_executor);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Whether the list belongs to the receiver; otherwise the connection owns it, with an executor that appends to it. */
static int is_lent(PyObject *out) { return Py_REFCNT(out) == 1; }

/* Takes the list back if it was lent and is empty; steals the reference, which may be NULL. */
static void return_list(Receiver *r, PyObject *out) {
    if (out && is_lent(out) && !PyList_GET_SIZE(out) && !r->spare) r->spare = out;
    else Py_XDECREF(out);
}

/* The runner has answered all input: the connection no longer needs its own executor. */
static int share_executor(Receiver *r, PyObject *connection, PyObject *out) {
    if (is_lent(out)) return 0;
    PyObject *done = PyObject_CallMethodNoArgs(connection, r->share_executor);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

#include "turns.h"

static PyObject *receive(PyObject *bound, PyObject *const *args, size_t flags, PyObject *names) {
    Reception *b = (Reception *)bound;
    Receiver *r = b->receiver;
    PyObject *connection = b->connection;
    if (!PyVectorcall_NARGS(flags) && !names) return take_turn(r, b);
    if (PyVectorcall_NARGS(flags) != 1 || names) return PyErr_Format(PyExc_TypeError, "data_received takes one argument");
    PyObject *run = get(connection, &r->run), *out, *reply = NULL, *done = NULL;
    if (run == Py_None) {
        Py_DECREF(run);
        return call(r->otherwise, connection, args[0]);
    }
    int serving = run ? is(connection, &r->state, r->serving) : -1;
    if (serving < 1) {
        Py_XDECREF(run);
        return serving < 0 ? NULL : call_method(connection, r->keep, args[0]);
    }
    if ((out = list_for_replies(r, connection))) reply = call(run, args[0], out);
    if (reply == Py_None) {
        Py_ssize_t position = next_turn(r, run);
        int left = position > 0 ? end_turn(r, b, args[0], out, 0, position) : position ? -1 : 1;
        if (!left) done = Py_NewRef(Py_None);
        else if (left > 0 && keep_list(r, connection, out) == 0) done = call_method(connection, r->serve_rest, args[0]);
    } else if (reply && share_executor(r, connection, out) == 0 && note_activity(r, connection) == 0) {
        if (PyBytes_CheckExact(reply) && !PyBytes_GET_SIZE(reply)) done = Py_NewRef(Py_None);
        else done = send_reply(r, b, reply);
    }
    Py_DECREF(run);
    return_list(r, out);
    Py_XDECREF(reply);
    return done;
}

static int Reception_traverse(Reception *b, visitproc visit, void *arg) {
    Py_VISIT(b->receiver);
    Py_VISIT(b->connection);
    return 0;
}

static int Reception_clear(Reception *b) {
    Py_CLEAR(b->connection);  /* the receiver is kept, because calls need it */
    return 0;
}

static void Reception_dealloc(Reception *b) {
    PyObject_GC_UnTrack(b);
    Py_XDECREF(b->receiver);
    Py_XDECREF(b->connection);
    Py_TYPE(b)->tp_free(b);
}

static PyTypeObject ReceptionType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.server.connections._native.Reception", .tp_basicsize = sizeof(Reception),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(Reception, call), .tp_call = PyVectorcall_Call,
    .tp_dealloc = (destructor)Reception_dealloc, .tp_traverse = (traverseproc)Reception_traverse,
    .tp_clear = (inquiry)Reception_clear, .tp_doc = "Receives the input of a connection.",
};

static PyObject *Receiver_get(Receiver *r, PyObject *connection, PyObject *type) {
    if (!connection) return Py_NewRef((PyObject *)r);
    if (!r->otherwise || !PyObject_TypeCheck(connection, (PyTypeObject *)r->type))
        return PyErr_Format(PyExc_TypeError, "not a connection: %R", connection);
    Reception *bound = PyObject_GC_New(Reception, &ReceptionType);
    if (!bound) return NULL;
    bound->call = receive;
    bound->receiver = (Receiver *)Py_NewRef((PyObject *)r);
    bound->connection = Py_NewRef(connection);
    bound->fd = UNKNOWN;
    PyObject_GC_Track(bound);
    return (PyObject *)bound;
}

static int Receiver_init(Receiver *r, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"connection", "clock", "descriptor", "counters", "intake", "serving", "yielded", "full_read", NULL};
    PyObject *type, *clock, *descriptor, *counters, *intake, *serving, *yielded;
    if (r->type) return PyErr_Format(PyExc_TypeError, "a receiver can be initialized only once"), -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!OO!O!OOn:Receiver", names, &PyType_Type, &type, &PyType_Type, &clock,
                                     &descriptor, &PyType_Type, &counters, &PyType_Type, &intake, &serving, &yielded,
                                     &r->full_read)) return -1;
    r->type = Py_NewRef(type);
    r->clock_type = Py_NewRef(clock);
    r->descriptor = Py_NewRef(descriptor);
    r->serving = Py_NewRef(serving);
    r->yielded = Py_NewRef(yielded);
    struct { Field *field; PyObject *type; const char *name; } fields[] = {
        {&r->run, type, "_run_commands"}, {&r->out, type, "_out"}, {&r->clock, type, "_clock"}, {&r->second, clock, "second"},
        {&r->last_command, type, "last_command"}, {&r->transport, type, "_transport"}, {&r->state, type, "_state"},
        {&r->counters, type, "_counters"}, {&r->services, type, "_services"}, {&r->pending_input, type, "_pending_input"},
        {&r->begin, type, "_begin"}, {&r->held, type, "_held"}, {&r->all_held, intake, "held"}, {&r->unsent, type, "_unsent"},
        {&r->stream, type, "_stream"}, {&r->writable, type, "writable"},
        {&r->until_slow_sample, counters, "until_slow_sample"}, {&r->bytes_read, counters, "bytes_read"},
        {&r->bytes_written, counters, "bytes_written"}, {&r->conn_yields, counters, "conn_yields"}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (find_field(fields[i].field, fields[i].type, fields[i].name)) return -1;
    struct { PyObject **to; const char *name; } others[] = {
        {&r->serve_rest, "_serve_rest"}, {&r->write, "write"}, {&r->take_turn, "_take_turn"}, {&r->resume_reading, "_resume_reading"},
        {&r->is_closing, "is_closing"}, {&r->call_together, "call_together"}, {&r->next_turn, "next_turn"},
        {&r->intake, "intake"}, {&r->scheduler, "scheduler"}, {&r->slow_down, "slow_down"},
        {&r->own_executor, "_own_executor"}, {&r->share_executor, "_share_executor"},
        {&r->keep, "_keep_for_next_turns"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!(*others[i].to = PyUnicode_InternFromString(others[i].name))) return -1;
    return (r->otherwise = PyObject_GetAttrString(type, "data_received")) ? 0 : -1;
}

static int Receiver_traverse(Receiver *r, visitproc visit, void *arg) {
    Py_VISIT(r->type);
    Py_VISIT(r->clock_type);
    Py_VISIT(r->otherwise);
    Py_VISIT(r->descriptor);
    Py_VISIT(r->other);
    Py_VISIT(r->spare);
    Py_VISIT(r->serving);
    Py_VISIT(r->yielded);
    for (int i = 0; i < MOST_TRANSPORTS; i++) {
        Py_VISIT(r->plain[i].type);
        Py_VISIT(r->plain[i].unsent);
    }
    return 0;
}

static int Receiver_clear(Receiver *r) {
    Py_CLEAR(r->type);
    Py_CLEAR(r->clock_type);
    Py_CLEAR(r->otherwise);
    Py_CLEAR(r->descriptor);
    Py_CLEAR(r->other);
    Py_CLEAR(r->spare);
    Py_CLEAR(r->serving);
    Py_CLEAR(r->yielded);
    for (int i = 0; i < MOST_TRANSPORTS; i++) {
        Py_CLEAR(r->plain[i].type);
        Py_CLEAR(r->plain[i].unsent);
    }
    return 0;
}

static void Receiver_dealloc(Receiver *r) {
    PyObject_GC_UnTrack(r);
    Receiver_clear(r);
    PyObject *attributes[] = {r->serve_rest, r->write, r->take_turn, r->resume_reading, r->is_closing, r->call_together, r->next_turn,
                              r->intake, r->scheduler, r->slow_down, r->own_executor, r->share_executor, r->keep};
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) Py_XDECREF(attributes[i]);
    Field *fields[] = {&r->run, &r->out, &r->clock, &r->second, &r->last_command, &r->transport, &r->state, &r->counters,
                       &r->services, &r->pending_input, &r->begin, &r->held, &r->all_held, &r->unsent, &r->stream, &r->writable,
                       &r->until_slow_sample, &r->bytes_read, &r->bytes_written, &r->conn_yields};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) Py_XDECREF(fields[i]->name);
    Py_TYPE(r)->tp_free(r);
}

static PyTypeObject ReceiverType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.server.connections._native.Receiver", .tp_basicsize = sizeof(Receiver),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, .tp_new = PyType_GenericNew, .tp_init = (initproc)Receiver_init,
    .tp_dealloc = (destructor)Receiver_dealloc, .tp_traverse = (traverseproc)Receiver_traverse,
    .tp_clear = (inquiry)Receiver_clear, .tp_descr_get = (descrgetfunc)Receiver_get,
    .tp_doc = "The method data_received of connections, in C; see native_receiver.py.",
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "Input of connections in C.", -1, NULL};
PyMODINIT_FUNC PyInit__native(void) {
    if (PyType_Ready(&ReceiverType) || PyType_Ready(&ReceptionType)) return NULL;
    PyObject *m = PyModule_Create(&module), *names = m ? Py_BuildValue("[ss]", "VERSION", "Receiver") : NULL;
    if (!names || PyModule_AddObjectRef(m, "__all__", names) || PyModule_AddIntMacro(m, VERSION)
        || PyModule_AddObjectRef(m, "Receiver", (PyObject *)&ReceiverType)) Py_CLEAR(m);
    Py_XDECREF(names);
    return m;
}
