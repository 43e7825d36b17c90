/* Sends a node's queued requests, once per iteration of the event loop: `Node._flush` in node.py. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *node, *calls;  /* `calls` makes the calls at the start of an iteration of the loop; NULL until needed */
} Flusher;

static PyObject *s_flush, *s_together, *s_call_together, *s_loop, *s_call_soon, *s_send;

static PyObject *flusher_call(PyObject *bound, PyObject *const *args, size_t flags, PyObject *names);

static int flusher_init(Flusher *self, PyObject *args, PyObject *kwargs) {
    PyObject *node;
    if (kwargs || !PyArg_ParseTuple(args, "O", &node)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected a node");
        return -1;
    }
    Py_XSETREF(self->node, Py_NewRef(node));
    self->call = flusher_call;
    return 0;
}

static int flusher_traverse(Flusher *self, visitproc visit, void *arg) {
    Py_VISIT(self->node);
    Py_VISIT(self->calls);
    return 0;
}

static int flusher_clear(Flusher *self) {
    Py_CLEAR(self->node);
    Py_CLEAR(self->calls);
    return 0;
}

static void flusher_dealloc(Flusher *self) {
    PyObject_GC_UnTrack(self);
    flusher_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *flusher_call(PyObject *bound, PyObject *const *args, size_t flags, PyObject *names) {
    PyObject *node = ((Flusher *)bound)->node, *result = NULL;
    if (PyVectorcall_NARGS(flags) || names) return PyErr_Format(PyExc_TypeError, "expected no arguments");
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
    .tp_doc = "Sends the requests that wait for a node.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)flusher_init,
    .tp_call = PyVectorcall_Call,
    .tp_traverse = (traverseproc)flusher_traverse,
    .tp_clear = (inquiry)flusher_clear,
    .tp_dealloc = (destructor)flusher_dealloc,
};

/* Makes the calls that are due in this iteration of the event loop: `Scheduler._call_together`. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *scheduler;
} Calls;

static int calls_traverse(Calls *self, visitproc visit, void *arg) {
    Py_VISIT(self->scheduler);
    return 0;
}

static int calls_clear(Calls *self) {
    Py_CLEAR(self->scheduler);
    return 0;
}

static void calls_dealloc(Calls *self) {
    PyObject_GC_UnTrack(self);
    calls_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Makes the event loop call the functions from `at` on, one by one. An earlier function has failed; its error is kept. */
static void call_others_soon(PyObject *scheduler, PyObject *functions, Py_ssize_t at) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *loop = PyObject_GetAttr(scheduler, s_loop);
    for (; loop && at < PyList_GET_SIZE(functions); at++) {
        PyObject *result = PyObject_CallMethodOneArg(loop, s_call_soon, PyList_GET_ITEM(functions, at));
        if (!result) PyErr_Clear();
        Py_XDECREF(result);
    }
    Py_XDECREF(loop);
    PyErr_Restore(type, value, traceback);
}

static PyObject *calls_call(PyObject *bound, PyObject *const *args, size_t flags, PyObject *names) {
    PyObject *scheduler = ((Calls *)bound)->scheduler, *functions, *following;
    if (PyVectorcall_NARGS(flags) || names) return PyErr_Format(PyExc_TypeError, "expected no arguments");
    if (!scheduler) Py_RETURN_NONE;
    Py_INCREF(scheduler);
    functions = PyObject_GetAttr(scheduler, s_together);
    following = functions ? PyList_New(0) : NULL;
    int failed = !following || !PyList_CheckExact(functions) || PyObject_SetAttr(scheduler, s_together, following);
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(functions); i++) {
        PyObject *function = Py_NewRef(PyList_GET_ITEM(functions, i));
        PyObject *result = Py_IS_TYPE(function, &Flusher_type) ? flusher_call(function, NULL, 0, NULL) : PyObject_CallNoArgs(function);
        failed = !result;
        Py_XDECREF(result);
        Py_DECREF(function);
        if (failed) call_others_soon(scheduler, functions, i + 1);
    }
    Py_DECREF(scheduler);
    Py_XDECREF(functions);
    Py_XDECREF(following);
    if (!failed) Py_RETURN_NONE;
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a list");
}

static PyTypeObject Calls_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.proxy._native.Calls",
    .tp_basicsize = sizeof(Calls),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(Calls, call),
    .tp_doc = "Calls the functions due in an iteration of the event loop.",
    .tp_call = PyVectorcall_Call,
    .tp_traverse = (traverseproc)calls_traverse,
    .tp_clear = (inquiry)calls_clear,
    .tp_dealloc = (destructor)calls_dealloc,
};

/* Returns the `Calls` of a scheduler, as a borrowed reference. */
static PyObject *calls_of(Flusher *flusher, PyObject *scheduler) {
    Calls *calls = (Calls *)flusher->calls;
    if (calls && calls->scheduler == scheduler) return (PyObject *)calls;
    if (!(calls = PyObject_GC_New(Calls, &Calls_type))) return NULL;
    calls->call = calls_call;
    calls->scheduler = Py_NewRef(scheduler);
    PyObject_GC_Track(calls);
    Py_XSETREF(flusher->calls, (PyObject *)calls);
    return flusher->calls;
}

/* Schedules a node's flusher, with others, for the next iteration of the event loop: `Scheduler.call_together`. */
static int call_together(PyObject *scheduler, PyObject *flusher) {
    PyObject *together = PyObject_GetAttr(scheduler, s_together), *result = NULL;
    if (together && PyList_CheckExact(together) && PyList_GET_SIZE(together)) {
        result = PyList_Append(together, flusher) ? NULL : Py_NewRef(Py_None);
    } else if (together && PyList_CheckExact(together) && Py_IS_TYPE(scheduler, known.scheduler_type)
               && Py_IS_TYPE(flusher, &Flusher_type)) {
        PyObject *calls = calls_of((Flusher *)flusher, scheduler), *loop = calls ? PyObject_GetAttr(scheduler, s_loop) : NULL;
        result = loop ? PyObject_CallMethodOneArg(loop, s_call_soon, calls) : NULL;
        if (result && PyList_Append(together, flusher)) Py_CLEAR(result);
        Py_XDECREF(loop);
    } else if (together) result = PyObject_CallMethodOneArg(scheduler, s_call_together, flusher);
    Py_XDECREF(together);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Schedules the sending of a node's queue for the next iteration of the event loop: `Node._flush_next`. */
static int flush_next(PyObject *node) {
    PyObject *lease = get(node, &known.lease), *until = lease ? get(lease, &known.lease_until) : NULL;
    Py_XDECREF(lease);
    if (set_new(node, &known.until, until) || time_wait(node)) return -1;
    PyObject *scheduler = get(node, &known.scheduler), *flusher = scheduler ? get(node, &known.flusher) : NULL;
    int failed = flusher ? call_together(scheduler, flusher) : -1;
    Py_XDECREF(scheduler);
    Py_XDECREF(flusher);
    return failed;
}

/* Sends a request through `node`; handles the usual case of `Node.send` here. */
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
