/* A request that arrived alone: Lone in single_requests.py. */

struct Lone {
    PyObject_HEAD
    PyObject *executor, *write, *counters;
    PyObject *by_line, *nodes;  /* dictionaries, or None while no request may be taken alone */
    PyObject *others;  /* the queue of other requests */
    PyObject *out;  /* replies that wait for the connection */
    PyObject *dues, *partly;  /* the cluster's lists of executors with replies, and with some of a batch's replies */
    Py_ssize_t most;
    PyObject *timing;  /* NULL if the client's times are not measured */
    long long since;  /* when the client was replied to, if its next request is timed; else 0 */
    Turns *turns;  /* decides which requests are traced; NULL if none are, or if they are traced by other means */
    char alone, reads, due, progresses;
};

static PyTypeObject Lone_type;

static PyObject *s_answer, *s_fail;

static int lone_init(Lone *self, PyObject *args, PyObject *kwargs) {
    PyObject *executor;
    if (kwargs || !PyArg_ParseTuple(args, "O", &executor)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected an executor");
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
    Py_VISIT(self->out);
    Py_VISIT(self->dues);
    Py_VISIT(self->partly);
    Py_VISIT(self->turns);
    Py_VISIT(self->timing);
    return 0;
}

static int lone_clear(Lone *self) {
    Py_CLEAR(self->executor);
    Py_CLEAR(self->write);
    Py_CLEAR(self->counters);
    Py_CLEAR(self->by_line);
    Py_CLEAR(self->nodes);
    Py_CLEAR(self->others);
    Py_CLEAR(self->out);
    Py_CLEAR(self->dues);
    Py_CLEAR(self->partly);
    Py_CLEAR(self->turns);
    Py_CLEAR(self->timing);
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

/* Notes that the client has all replies: `Timing.begin_thinking`. */
static int begin_thinking(Lone *self) {
    int is = self->timing ? is_same(self->timing, &known.thinks, Py_True) : 0;
    if (is < 1) return is;
    self->since = nanoseconds();
    return self->since < 0 ? -1 : put(self->timing, &known.thinks, Py_False);
}

/* Notes that the client has sent a request: `Timing.end_thinking`. */
static int end_thinking(Lone *self) {
    if (!self->since) return 0;
    long long took = nanoseconds() - self->since;
    self->since = 0;
    return self->timing ? record_in(self->timing, &known.thinking, took) : 0;
}

static int lone_reads(Lone *lone) { return lone->reads; }

/* Returns whether the replies to several requests are written without Python. */
static int writes_replies(const Lone *self) {
    return self->write && self->write != Py_None && self->by_line && PyDict_Check(self->by_line) && self->nodes && PyDict_Check(self->nodes);
}

/* Returns whether the next request may be forwarded here. */
static int may_take(const Lone *self) { return !self->alone && (!self->turns || most_together(self->turns) > 0); }

/* Forwards a traced request; returns 0 or -1. */
static int forward_traced(Lone *self, PyObject *node, PyObject *data) {
    Turns *turns = self->turns;
    Traced *traced = traced_of(turns, self->executor, name_of(node), PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data));
    if (!traced) return -1;
    traced->lone = (Lone *)Py_NewRef((PyObject *)self);
    turns->left = turns->every;
    int failed = send_by(node, data, (PyObject *)traced) || traced_await(traced, node);
    Py_DECREF((PyObject *)traced);
    return failed ? -1 : 0;
}

/* Forwards a request; returns 1, or -1 with an error. */
static int forward(Lone *self, PyObject *node, PyObject *data, int reads) {
    self->alone = 1;
    self->reads = (char)reads;
    if (end_thinking(self)) return -1;
    Py_INCREF(node);
    int failed = self->turns && self->turns->left-- < 2 ? forward_traced(self, node, data) : send_by(node, data, (PyObject *)self);
    Py_DECREF(node);
    return failed ? -1 : 1;
}

static int take_line(Lone *self, PyObject *by_line, PyObject *data, PyObject *kind) {
    if (!may_take(self)) return 0;
    PyObject *node = node_of_line(data, by_line, self->nodes);
    if (!node) return PyErr_Occurred() ? -1 : 0;
    return (PyObject *)Py_TYPE(node) == kind ? forward(self, node, data, 1) : 0;
}

static PyObject *lone_take(Lone *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3 || !PyDict_Check(args[0]) || !PyBytes_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "expected a dictionary, bytes and a type");
    int taken = take_line(self, args[0], args[1], args[2]);
    return taken < 0 ? NULL : PyBool_FromLong(taken);
}

static int take_stored(Lone *self, PyObject *nodes, PyObject *data, long most, PyObject *kind) {
    const char *start = PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data), *line = line_end(start, end), *found, *word;
    if (!may_take(self) || !line || stored_end(start, line, end, most, 1, &found, &word) != end) return 0;
    PyObject *node = node_of(found, word - found, nodes);
    if (!node) return PyErr_Occurred() ? -1 : 0;
    return (PyObject *)Py_TYPE(node) == kind ? forward(self, node, data, 0) : 0;
}

static int take_change(Lone *self, PyObject *nodes, PyObject *data, PyObject *kind) {
    const char *start = PyBytes_AS_STRING(data), *word = NULL, *found = changed_key(start, start + PyBytes_GET_SIZE(data), &word);
    if (!may_take(self) || !found) return 0;
    PyObject *node = node_of(found, word - found, nodes);
    if (!node) return PyErr_Occurred() ? -1 : 0;
    return (PyObject *)Py_TYPE(node) == kind ? forward(self, node, data, 0) : 0;
}

static PyObject *lone_take_set(Lone *self, PyObject *const *args, Py_ssize_t count) {
    long most = count == 4 ? PyLong_AsLong(args[2]) : -1;
    if (most < 0 || !PyDict_Check(args[0]) || !PyBytes_CheckExact(args[1]))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a dictionary, bytes, a number and a type");
    int taken = take_stored(self, args[0], args[1], most, args[3]);
    return taken < 0 ? NULL : PyBool_FromLong(taken);
}

static int take_multiget(Lone *lone, PyObject *data);
static Py_ssize_t take_batch(Lone *lone, PyObject *data);

static PyObject *lone_take_batch(Lone *self, PyObject *data) {
    if (!PyBytes_CheckExact(data)) return PyErr_Format(PyExc_TypeError, "expected bytes");
    Py_ssize_t taken = self->alone ? 0 : take_batch(self, data);
    return taken < 0 ? NULL : PyLong_FromSsize_t(taken);
}

static PyObject *lone_take_keys(Lone *self, PyObject *data) {
    if (!PyBytes_CheckExact(data)) return PyErr_Format(PyExc_TypeError, "expected bytes");
    int taken = take_multiget(self, data);
    return taken < 0 ? NULL : PyBool_FromLong(taken);
}

static PyMethodDef lone_methods[] = {
    {"answer", (PyCFunction)lone_answer, METH_O, "Take the reply."},
    {"fail", (PyCFunction)lone_fail, METH_O, "Take the error that stands for the reply."},
    {"take", (PyCFunction)(void (*)(void))lone_take, METH_FASTCALL, "Forward a get whose line is known."},
    {"take_batch", (PyCFunction)lone_take_batch, METH_O, "Forward several requests; return how many bytes they took."},
    {"take_keys", (PyCFunction)lone_take_keys, METH_O, "Forward a get of several keys."},
    {"take_set", (PyCFunction)(void (*)(void))lone_take_set, METH_FASTCALL, "Forward a small set."},
    {NULL},
};
static PyObject *lone_get_turns(Lone *self, void *ignored) {
    return Py_NewRef(self->turns ? (PyObject *)self->turns : Py_None);
}

static int lone_set_turns(Lone *self, PyObject *turns, void *ignored) {
    if (!turns || !Py_IS_TYPE(turns, &Turns_type)) return PyErr_Format(PyExc_TypeError, "expected Turns"), -1;
    Py_XSETREF(self->turns, (Turns *)Py_NewRef(turns));
    return 0;
}

static PyObject *lone_get_timing(Lone *self, void *ignored) { return Py_NewRef(self->timing ? self->timing : Py_None); }

static int lone_set_timing(Lone *self, PyObject *timing, void *ignored) {
    if (!timing || !known.timing_type || !Py_IS_TYPE(timing, known.timing_type))
        return PyErr_Format(PyExc_TypeError, "expected a Timing, and nodes must be known"), -1;
    Py_XSETREF(self->timing, Py_NewRef(timing));
    return 0;
}

static PyGetSetDef lone_getset[] = {
    {"timing", (getter)lone_get_timing, (setter)lone_set_timing, "Holds the times of requests.", NULL},
    {"turns", (getter)lone_get_turns, (setter)lone_set_turns, "Decides which requests are traced.", NULL},
    {NULL},
};
static PyMemberDef lone_members[] = {
    {"executor", T_OBJECT, offsetof(Lone, executor), 0, NULL},
    {"write", T_OBJECT, offsetof(Lone, write), 0, NULL},
    {"counters", T_OBJECT, offsetof(Lone, counters), 0, NULL},
    {"by_line", T_OBJECT, offsetof(Lone, by_line), 0, NULL},
    {"nodes", T_OBJECT, offsetof(Lone, nodes), 0, NULL},
    {"others", T_OBJECT, offsetof(Lone, others), 0, NULL},
    {"out", T_OBJECT, offsetof(Lone, out), 0, NULL},
    {"dues", T_OBJECT, offsetof(Lone, dues), 0, NULL},
    {"partly", T_OBJECT, offsetof(Lone, partly), 0, NULL},
    {"most", T_PYSSIZET, offsetof(Lone, most), 0, NULL},
    {"since", T_LONGLONG, offsetof(Lone, since), 0, NULL},
    {"alone", T_BOOL, offsetof(Lone, alone), 0, NULL},
    {"reads", T_BOOL, offsetof(Lone, reads), 0, NULL},
    {"due", T_BOOL, offsetof(Lone, due), 0, NULL},
    {"progresses", T_BOOL, offsetof(Lone, progresses), 0, NULL},
    {NULL},
};
static PyTypeObject Lone_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.proxy._native.Lone",
    .tp_basicsize = sizeof(Lone),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "A request that arrived alone.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)lone_init,
    .tp_traverse = (traverseproc)lone_traverse,
    .tp_clear = (inquiry)lone_clear,
    .tp_dealloc = (destructor)lone_dealloc,
    .tp_methods = lone_methods,
    .tp_members = lone_members,
    .tp_getset = lone_getset,
};
