/* Input of clients' and nodes' connections: connection.py and link.py, whose methods handle all unusual input. */

typedef struct Reception Reception;

typedef struct {  /* takes the place of `data_received` in a class */
    PyObject_HEAD
    PyTypeObject *type;  /* the protocols' type */
    PyObject *otherwise;  /* the method in Python */
    int (*take)(Reception *, PyObject *);  /* returns whether all is done, or -1 */
    PyTypeObject *usual;  /* the type of clients' executors whose method `take` this replaces */
    PyObject *usual_take;
    Py_ssize_t longest;  /* the longest line of a get */
    Field executor, ready_limit, counters, until, bytes_read, clock, second, last_command, out;
} Receiver;

struct Reception {  /* a receiver that is bound to a protocol */
    PyObject_HEAD
    vectorcallfunc call;
    Receiver *receiver;
    PyObject *protocol;
    Lone *lone;  /* that of the last executor seen */
    PyObject *rest;  /* the rest of the input if only part of it was taken */
};

static PyTypeObject Reception_type, Receiver_type;
static PyObject *s_handed_out, *s_take_input;

/* Returns the `Lone` of the client's executor, as a borrowed reference; NULL if the executor is not a usual one, or with an
 * error. */
static Lone *lone_of(Reception *b) {
    PyObject *executor = get(b->protocol, &b->receiver->executor);
    if (!executor) return NULL;
    if (!b->lone || b->lone->executor != executor) {
        Py_CLEAR(b->lone);
        if (PyObject_TypeCheck(executor, b->receiver->usual)) {
            PyObject *take = PyObject_GetAttr((PyObject *)Py_TYPE(executor), s_take_input);
            PyObject *lone = take ? PyObject_GetAttr(executor, s_lone) : NULL;
            Py_XDECREF(take);
            if (lone && Py_IS_TYPE(lone, &Lone_type) && ((Lone *)lone)->executor == executor
                && (take == b->receiver->usual_take || ((Lone *)lone)->turns)) b->lone = (Lone *)lone;
            else Py_XDECREF(lone);
        }
    }
    Py_DECREF(executor);  /* the connection holds a reference */
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
    Py_ssize_t size = PyBytes_GET_SIZE(data), others = PyObject_Size(lone->others), several = 0;
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
        if (!taken) taken = take_multiget(lone, data);
        if (!taken && size > 4 && (table = lone->nodes) && PyDict_Check(table)) {
            Py_INCREF(table);
            /* Other changes are counted by kind, unless replies are written directly. */
            int counted = !lone->write || lone->write == Py_None;
            if (!counted && size <= 2 * r->longest) taken = take_change(lone, table, data, (PyObject *)known.node);
            if (!taken && (!counted || !memcmp(PyBytes_AS_STRING(data), "set ", 4)))
                taken = take_stored(lone, table, data, (long)lone->most, (PyObject *)known.node);
            Py_DECREF(table);
        }
        if (!taken && size > 8 && (several = take_batch(lone, data))) taken = several < 0 ? -1 : 1;
        Py_DECREF(lone);
    }
    if (several > 0 && several < size) {
        if (!(b->rest = piece(data, several, size))) taken = -1;
        size = several;
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
    return taken > 0 && b->rest ? 0 : taken;
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
    Py_DECREF(first);  /* only its type is compared */
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
    if (done < 0) {
        Py_CLEAR(b->rest);
        return NULL;
    }
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
    Py_CLEAR(b->lone);  /* calls need the other members */
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
    .tp_doc = "Receives the input of a connection.",
    .tp_vectorcall_offset = offsetof(Reception, call),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = (traverseproc)reception_traverse,
    .tp_clear = (inquiry)reception_clear,
    .tp_dealloc = (destructor)reception_dealloc,
};

static PyObject *receiver_get(Receiver *r, PyObject *protocol, PyObject *type) {
    if (!protocol) return Py_NewRef((PyObject *)r);
    if (!r->otherwise || !PyObject_TypeCheck(protocol, r->type))
        return PyErr_Format(PyExc_TypeError, "not a supported connection: %R", protocol);
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
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a receiver can be initialized only once, without keyword arguments");
        return -1;
    }
    r->type = (PyTypeObject *)Py_NewRef(type);
    r->take = executor ? take_from_client : take_from_node;
    if (executor) {
        if (!clock) return PyErr_Format(PyExc_TypeError, "receivers of clients require four types"), -1;
        r->usual = (PyTypeObject *)Py_NewRef(executor);
        if (!(r->usual_take = PyObject_GetAttr(executor, s_take_input))) return -1;
        struct { Field *field; PyObject *type; const char *name; } fields[] = {
            {&r->executor, type, "executor"}, {&r->ready_limit, type, "_immediate_limit"}, {&r->counters, type, "_counters"},
            {&r->until, counters, "until_slow_sample"}, {&r->bytes_read, counters, "bytes_read"}, {&r->clock, type, "_clock"},
            {&r->second, clock, "second"}, {&r->last_command, type, "last_command"}, {&r->out, type, "_out"}};
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
            if (find_field(fields[i].field, fields[i].type, fields[i].name)) return -1;
        if (find_field(&bytes_written, counters, "bytes_written")) return -1;
        Py_XSETREF(counters_type, (PyTypeObject *)Py_NewRef(counters));
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
