/* A node's part of several requests of a client, or of one for several keys: parts.py. */

typedef struct Batch Batch;

typedef struct {
    PyObject_VAR_HEAD
    Batch *batch;  /* a `MultiGet` if `request` is set, which is then the request for the node's keys */
    PyObject *buffer, *request;
    Py_ssize_t index, missing, have, taken;  /* `taken` counts the pieces that were joined */
    char reads;
    Py_ssize_t ends[];  /* the ends of the `have` replies or items in the buffer */
} Part;

static PyTypeObject Part_type, Batch_type, MultiGet_type;

static int batch_part_done(Batch *batch), batch_progressed(Batch *batch), batch_count_failures(Batch *batch, Py_ssize_t number);
static int multiget_part_done(Batch *batch), multiget_take(Batch *batch, Py_ssize_t index, PyObject *reply, int failed);
static PyObject *s_appendleft;

static Part *part_of(Batch *batch, Py_ssize_t index, Py_ssize_t count, int reads, PyObject *request) {
    Part *self = PyObject_NewVar(Part, &Part_type, count);
    if (!self) return NULL;
    self->batch = (Batch *)Py_NewRef((PyObject *)batch);
    self->buffer = NULL;
    self->request = Py_XNewRef(request);
    self->index = index;
    self->missing = request ? 1 : count;
    self->have = self->taken = 0;
    self->reads = (char)reads;
    return self;
}

static void part_dealloc(Part *self) {
    Py_XDECREF((PyObject *)self->batch);
    Py_XDECREF(self->buffer);
    Py_XDECREF(self->request);
    PyObject_Free(self);
}

/* Adds `count` consecutive pieces of `data`: the first begins at `from`, and they end at `ends`. */
static int part_add(Part *self, PyObject *data, Py_ssize_t from, const Py_ssize_t *ends, Py_ssize_t count) {
    PyObject *more = from == 0 && ends[count - 1] == PyBytes_GET_SIZE(data)
        ? Py_NewRef(data) : PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + from, ends[count - 1] - from);
    if (!more) return -1;
    Py_ssize_t before = self->buffer ? PyBytes_GET_SIZE(self->buffer) : 0;
    if (self->buffer) {
        PyBytes_ConcatAndDel(&self->buffer, more);
        if (!self->buffer) {
            self->buffer = PyBytes_FromStringAndSize(NULL, 0);  /* needs no memory */
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

/* Takes the reply to a retrieval of several keys, with at most one item for each; returns whether it has that form. */
static int part_items(Part *self, PyObject *data, Py_ssize_t from, Py_ssize_t to) {
    const char *start = PyBytes_AS_STRING(data), *at = start + from, *end = start + to - END_SIZE;
    const char *key = PyBytes_AS_STRING(self->request), *keys_end = key + PyBytes_GET_SIZE(self->request) - 2;
    if (end < at || memcmp(end, END, END_SIZE)) return 0;
    int odd = 0;  /* ignored: only the keys of the items are checked */
    key += 4;  /* "get " */
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        if (key >= keys_end) return 0;
        const char *next = memchr(key, ' ', keys_end - key);
        if (!next) next = keys_end;
        Py_ssize_t length = next - key;
        if (end - at > 6 + length && !memcmp(at, "VALUE ", 6) && !memcmp(at + 6, key, length) && at[6 + length] == ' ') {
            if (!(at = value_end(at, end, &odd))) return 0;
        }
        self->ends[i] = at - start - from;
        key = next + 1;
    }
    if (at != end || !(self->buffer = piece(data, from, to))) return 0;
    self->have = Py_SIZE(self);
    return 1;
}

/* Takes `count` replies, or the only one to a retrieval of several keys, and notifies the batch. */
static int part_receive(Part *self, PyObject *data, Py_ssize_t from, const Py_ssize_t *ends, Py_ssize_t count) {
    if (self->request) {
        self->missing = 0;
        if (self->have || part_items(self, data, from, *ends)) return multiget_part_done(self->batch);
        if (PyErr_Occurred()) return -1;
        PyObject *reply = piece(data, from, *ends);
        int failed = !reply || multiget_take(self->batch, self->index, reply, 0);
        Py_XDECREF(reply);
        return failed ? -1 : 0;
    }
    if (part_add(self, data, from, ends, count)) return -1;
    return self->missing ? 0 : batch_part_done(self->batch);
}

static PyObject *part_answer(Part *self, PyObject *reply) {
    if (!PyBytes_CheckExact(reply) || !self->missing) return PyErr_Format(PyExc_ValueError, "expected bytes, and a reply must be missing");
    Py_ssize_t end = PyBytes_GET_SIZE(reply);
    if (part_receive(self, reply, 0, &end, 1)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *part_fail(Part *self, PyObject *error) {
    if (!PyBytes_CheckExact(error) || !self->missing) return PyErr_Format(PyExc_ValueError, "expected bytes, and a reply must be missing");
    if (self->request) {
        self->missing = 0;
        if (multiget_take(self->batch, self->index, error, 1)) return NULL;
        Py_RETURN_NONE;
    }
    if (batch_count_failures(self->batch, self->missing)) return NULL;
    Py_ssize_t end = PyBytes_GET_SIZE(error);
    while (self->missing) if (part_add(self, error, 0, &end, 1)) return NULL;
    if (batch_part_done(self->batch)) return NULL;
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

/* Returns the size of what has been received and not joined. */
static Py_ssize_t part_left(const Part *self) {
    return (self->have ? self->ends[self->have - 1] : 0) - (self->taken ? self->ends[self->taken - 1] : 0);
}

/* Makes the replies received so far empty. */
static int part_forget(Part *self) {
    if (self->buffer) {
        PyObject *nothing = PyBytes_FromStringAndSize(NULL, 0);
        if (!nothing) return -1;
        Py_SETREF(self->buffer, nothing);
    }
    for (Py_ssize_t i = 0; i < self->have; i++) self->ends[i] = 0;
    return 0;
}

static PyObject *part_progressed(Part *self, PyObject *ignored) {
    if (self->request) return PyErr_Format(PyExc_ValueError, "a get of several keys is answered as a whole");
    if (batch_progressed(self->batch)) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef part_methods[] = {
    {"answer", (PyCFunction)part_answer, METH_O, "Take a reply."},
    {"fail", (PyCFunction)part_fail, METH_O, "Take the error that stands for each missing reply."},
    {"progressed", (PyCFunction)part_progressed, METH_NOARGS, "Note that some of its replies have arrived."},
    {"pieces", (PyCFunction)part_pieces, METH_NOARGS, "Return the replies or items received so far."},
    {NULL},
};
static PyMemberDef part_members[] = {
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
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Receives a node's replies.",
    .tp_dealloc = (destructor)part_dealloc,
    .tp_methods = part_methods,
    .tp_members = part_members,
};

/* Joins the available pieces of parts, from position `begin` of an order that names the part of each piece, followed by `tail`.
 * Sets `number` to the position in the order where they end. */
static PyObject *join_parts(PyObject *names, Part **list, Py_ssize_t parts, Py_ssize_t begin, const char *tail, Py_ssize_t *number) {
    const unsigned char *order = (const unsigned char *)PyBytes_AS_STRING(names);
    Py_ssize_t end = PyBytes_GET_SIZE(names), total = strlen(tail), starts[256], i;
    for (i = 0; i < parts; i++) starts[i] = list[i]->taken;
    for (i = begin; i < end; i++) {
        Part *part = order[i] < parts ? list[order[i]] : NULL;
        if (!part || part->taken == part->have) break;
        total += part->ends[part->taken] - (part->taken ? part->ends[part->taken - 1] : 0);
        part->taken++;
    }
    *number = end = i;
    PyObject *result = PyBytes_FromStringAndSize(NULL, total);
    if (!result) return NULL;
    char *to = PyBytes_AS_STRING(result);
    for (i = begin; i < end; i++) {
        Part *part = list[order[i]];
        Py_ssize_t at = starts[order[i]]++, from = at ? part->ends[at - 1] : 0, size = part->ends[at] - from;
        memcpy(to, PyBytes_AS_STRING(part->buffer) + from, size);
        to += size;
    }
    memcpy(to, tail, strlen(tail));
    return result;
}
