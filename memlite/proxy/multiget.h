/* A get of keys that several nodes have: JoinedMultiGet in parts.py, whose counterpart in Python is MultiGet in requests.py.
 *
 * It is a `Batch` that is one request, and whose reply is sent once all nodes have answered. `order` has, for each key, the index
 * of its part. `unusual` is a list of the replies that are not of the usual form, in the places of their parts; NULL for none.
 * `failed` is set if a node has failed. `answered_by_all` is called once all nodes have answered, with the reply and `failed`. */

static PyObject *s_cluster, *s_end, *s_merged_reply, *s_multigets;

static PyObject *multiget_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *executor, *found, *order, *node, *request;
    Py_ssize_t count;
    if (kwargs || !PyArg_ParseTuple(args, "OO!O!", &executor, &PyList_Type, &found, &PyBytes_Type, &order)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "keyword arguments are not supported");
        return NULL;
    }
    Batch *self = batch_of(type, executor, NULL, order, PyList_GET_SIZE(found));
    for (Py_ssize_t i = 0; self && i < PyList_GET_SIZE(found); i++) {
        PyObject *one = PyList_GET_ITEM(found, i);
        if (!PyTuple_Check(one)) PyErr_SetString(PyExc_TypeError, "expected a list of tuples");
        if (!PyTuple_Check(one) || !PyArg_ParseTuple(one, "OSn", &node, &request, &count) || !batch_add(self, count, 1, request)) {
            batch_drop_parts(self);
            Py_CLEAR(self);
        }
    }
    return (PyObject *)self;
}

/* Returns the reply if some of the nodes' replies are unusual. */
static PyObject *multiget_merged(Batch *self) {
    PyObject *parts = PyList_New(self->known);
    for (Py_ssize_t i = 0; parts && i < self->known; i++) PyList_SET_ITEM(parts, i, Py_NewRef((PyObject *)self->parts[i]));
    PyObject *args[] = {self->executor, self->order, parts, self->unusual};
    PyObject *reply = parts ? PyObject_VectorcallMethod(s_merged_reply, args, 4, NULL) : NULL;
    Py_XDECREF(parts);
    if (!reply || PyBytes_CheckExact(reply)) return reply;
    Py_DECREF(reply);
    return PyErr_Format(PyExc_TypeError, "expected bytes");
}

/* Notes that a node has answered, with an item for each key that it has. */
static int multiget_part_done(Batch *self) {
    Py_ssize_t number;
    if (--self->missing) return 0;
    PyObject *reply = self->unusual ? multiget_merged(self) : join_parts(self->order, self->parts, self->known, 0, END, &number);
    if (!reply) return -1;
    Py_XSETREF(self->reply, reply);
    Traced *traced = batch_traced(self);
    int failed = (traced && traced_receive(traced, PyBytes_AS_STRING(reply), PyBytes_GET_SIZE(reply))) || batch_answered(self);
    batch_drop_parts(self);
    if (failed || !self->answered_by_all || self->answered_by_all == Py_None) return failed ? -1 : 0;
    PyObject *notified = self->answered_by_all;
    self->answered_by_all = NULL;  /* it may refer to this object */
    PyObject *args[] = {reply, self->failed ? Py_True : Py_False}, *result = PyObject_Vectorcall(notified, args, 2, NULL);
    Py_DECREF(notified);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Takes a node's reply that is not of the usual form. */
static int multiget_take(Batch *self, Py_ssize_t index, PyObject *reply, int failed) {
    if (!self->unusual && !(self->unusual = PyList_New(self->known))) return -1;
    for (Py_ssize_t i = 0; i < self->known; i++)
        if (!PyList_GET_ITEM(self->unusual, i)) PyList_SET_ITEM(self->unusual, i, Py_NewRef(Py_None));
    if (PyList_SetItem(self->unusual, index, Py_NewRef(reply))) return -1;
    if (failed) self->failed = 1;
    return failed && call(self->executor, s_count_failure) ? -1 : multiget_part_done(self);
}

static PyObject *multiget_part(Batch *self, PyObject *number) {
    Py_ssize_t index = PyNumber_AsSsize_t(number, PyExc_IndexError);
    if (index >= 0 && index < self->known) return Py_NewRef((PyObject *)self->parts[index]);
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_IndexError, "there is no such part");
}

/* Forgets the replies received so far: their keys become misses. An error remains one, without its text. */
static PyObject *multiget_discard(Batch *self, PyObject *ignored) {
    for (Py_ssize_t i = 0; self->unusual && i < PyList_GET_SIZE(self->unusual); i++) {
        PyObject *reply = PyList_GET_ITEM(self->unusual, i);
        if (!PyBytes_Check(reply)) continue;
        const char *text = PyBytes_AS_STRING(reply);
        PyObject *rest = PyBytes_FromString(!strncmp(text, "VALUE ", 6) || !strncmp(text, END, END_SIZE) ? END : "");
        if (!rest || PyList_SetItem(self->unusual, i, rest)) return NULL;
    }
    return batch_discard(self, NULL);
}

static PyObject *multiget_held(Batch *self, void *ignored) {
    Py_ssize_t held = batch_size(self);
    for (Py_ssize_t i = 0; self->known && self->unusual && i < self->known; i++) {
        PyObject *reply = PyList_GET_ITEM(self->unusual, i);
        if (PyBytes_Check(reply)) held += PyBytes_GET_SIZE(reply);
    }
    return PyLong_FromSsize_t(held);
}

static PyObject *multiget_reads(Batch *self, void *ignored) { Py_RETURN_TRUE; }
static PyObject *multiget_count(Batch *self, void *ignored) { return PyLong_FromLong(1); }

static PyMethodDef multiget_methods[] = {
    {"part", (PyCFunction)multiget_part, METH_O, "Return the receiver for one of the nodes."},
    {"discard", (PyCFunction)multiget_discard, METH_NOARGS, "Forget the replies received so far."},
    {NULL},
};
static PyMemberDef multiget_members[] = {
    {"reply", T_OBJECT, offsetof(Batch, reply), 0, NULL},
    {"observer", T_OBJECT, offsetof(Batch, observer), 0, NULL},
    {"answered_by_all", T_OBJECT, offsetof(Batch, answered_by_all), 0, NULL},
    {"closes", T_BOOL, offsetof(Batch, closes), 0, NULL},
    {"waits", T_BOOL, offsetof(Batch, waits), READONLY, NULL},
    {NULL},
};
static PyGetSetDef multiget_getset[] = {
    {"count", (getter)multiget_count, NULL, "How many requests it is.", NULL},
    {"held", (getter)multiget_held, NULL, "The size in bytes of the replies received and not sent.", NULL},
    {"reads", (getter)multiget_reads, NULL, "Whether it changes nothing.", NULL},
    {NULL},
};
static PyTypeObject MultiGet_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.proxy._native.MultiGet",
    .tp_basicsize = sizeof(Batch),
    .tp_itemsize = sizeof(Part *),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A get of keys that several nodes have.",
    .tp_new = multiget_new,
    .tp_dealloc = (destructor)batch_dealloc,
    .tp_methods = multiget_methods,
    .tp_members = multiget_members,
    .tp_getset = multiget_getset,
};

/* Returns whether input is one line that gets several keys: `is_multiget` in executor.py. */
static int is_multiget(PyObject *data) {
    const char *start = PyBytes_AS_STRING(data);
    Py_ssize_t size = PyBytes_GET_SIZE(data);
    return size > 8 && !memcmp(start, "get ", 4) && memchr(start, '\n', size) == start + size - 1 && memchr(start + 4, ' ', size - 4)
        && !memchr(start, '\0', size);
}

static int count_multiget(PyObject *executor) {
    static Field multigets = {NULL, -1};
    multigets.name = s_multigets;
    PyObject *cluster = PyObject_GetAttr(executor, s_cluster);
    long long before = cluster ? get_number(cluster, &multigets) : -1;
    int failed = before < 0 || put_number(cluster, &multigets, before + 1);
    Py_XDECREF(cluster);
    return failed ? -1 : 0;
}

/* Traces a get of several keys if it is its turn; returns 0 or -1. */
static int trace_multiget(Batch *self, Turns *turns, PyObject *data, const Keys *k) {
    if (!turns || turns->left-- > 1) return 0;
    turns->left = turns->every;
    PyObject *names = PyList_New(k->known), *space = PyUnicode_FromString(" "), *joined = NULL;
    for (int i = 0; names && i < k->known; i++) {
        PyObject *name = name_of(k->shares[i].node);
        if (name) PyList_SET_ITEM(names, i, name);
        else Py_CLEAR(names);
    }
    if (names && space) joined = PyUnicode_Join(space, names);
    Py_XDECREF(names);
    Py_XDECREF(space);
    Traced *traced = traced_of(turns, self->executor, joined, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data));
    if (traced) traced->part = EACH_PART;
    self->observer = (PyObject *)traced;
    return traced ? 0 : -1;
}

/* Sends the nodes their parts; returns 0 or -1. A node that is down answers at once, and the parts are dropped once all have. */
static int send_parts(Batch *self, const Share *shares, PyObject *const *requests) {
    Traced *traced = batch_traced(self);
    Py_ssize_t parts = self->known;
    int failed = 0;
    for (Py_ssize_t i = 0; i < parts && !failed; i++) {
        PyObject *part = Py_NewRef((PyObject *)self->parts[i]), *node = Py_NewRef(shares[i].node);
        failed = send_by(node, requests[i], part) || (traced && traced_await(traced, node));
        Py_DECREF(part);
        Py_DECREF(node);
    }
    if (failed || !self->reply) return failed ? -1 : 0;
    PyObject *result = PyObject_CallMethodOneArg(self->executor, s_end, (PyObject *)self);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Forwards a get of keys that several nodes have; returns 1, or -1 with an error. */
static int forward_keys(Lone *lone, PyObject *data, Keys *k) {
    PyObject *requests[MOST_OWNERS];
    Batch *whole = batch_of(&MultiGet_type, lone->executor, lone, k->order, k->known);
    if (!whole || new_copies(k->shares, k->known, GET_EXTRA, requests)) {
        Py_XDECREF((PyObject *)whole);
        return -1;
    }
    write_gets(data, k);
    int failed = 0;
    for (int i = 0; i < k->known && !failed; i++) failed = !batch_add(whole, k->shares[i].count, 1, requests[i]);
    failed = failed || trace_multiget(whole, lone->turns, data, k) || count_multiget(lone->executor)
        || begin_batch(lone, whole) || send_parts(whole, k->shares, requests);
    if (failed) batch_drop_parts(whole);
    Py_DECREF((PyObject *)whole);
    for (int i = 0; i < k->known; i++) Py_DECREF(requests[i]);
    return failed ? -1 : 1;
}

/* Forwards a get of several ordinary keys; returns 1, 0 if it is left to Python, or -1. */
static int take_multiget(Lone *lone, PyObject *data) {
    if (!may_take(lone) || !writes_replies(lone) || !is_multiget(data)) return 0;
    if (lone->turns && lone->turns->left < 2 && lone->turns->offset < 0) return 0;  /* Python names the keys */
    Keys keys;
    int done = find_keys(data, lone->nodes, (PyObject *)known.node, &keys);
    if (done < 1) return done;
    done = keys.known == 1 ? forward(lone, keys.shares[0].node, data, 1) : forward_keys(lone, data, &keys);
    Py_DECREF(keys.order);
    return done;
}
