/* Sends what waits for a node, once in an iteration of the event loop: `Node._flush` in node.py. */

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
