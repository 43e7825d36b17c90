/* Writing to a transport with a known socket: writer_of in single_requests.py. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *transport;
    int fd;
} Writer;

static PyTypeObject Writer_type;
static PyObject *s_write, *s_unsent;
static struct { PyTypeObject *type; PyObject *method; } unsent;  /* a type of transports, and its method for unsent bytes */

/* Returns the method that tells how much the transport has yet to send, as a borrowed reference. */
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
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected a transport and a number");
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

/* Sends [from, to) of `data` like the transport, which takes over any bytes that could not be sent. */
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
        return PyErr_Format(PyExc_TypeError, "expected bytes");
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

/* Writes with a callable, which may be a `Writer`. */
static int write_with(PyObject *write, PyObject *data, Py_ssize_t from, Py_ssize_t to) {
    if (Py_IS_TYPE(write, &Writer_type)) return write_part((Writer *)write, data, from, to);
    PyObject *one = piece(data, from, to);
    PyObject *result = one ? PyObject_CallOneArg(write, one) : NULL;
    Py_XDECREF(one);
    Py_XDECREF(result);
    return result ? 0 : -1;
}
