/* Tracing of one request in N: Turns and Traced in turns.py, and trace_rows.py. */

typedef struct Lone Lone;

typedef struct {  /* decides which request is the next to be traced */
    PyObject_HEAD
    PyObject *done;  /* the list of finished requests without lines; None if Python traces requests */
    PyObject *cluster, *last_epoch;  /* `last_epoch` is the one whose value is `epoch`; NULL for none */
    long long left, every;  /* `left` is 1 if the next request is traced */
    long long offset, epoch;  /* `offset` is -1 if no lines are written */
    char *lines;
    Py_ssize_t used, room, count;  /* of `lines`: in bytes, and the number of lines */
} Turns;

typedef struct {  /* a traced request; receives the reply if it has arrived alone */
    PyObject_HEAD
    Lone *lone;  /* the request it stands for, until the reply */
    Turns *turns;
    PyObject *client, *epoch, *node, *request;  /* `node` is the name, or several; `request` is its line */
    long long arrival, sent, received, replied;  /* times; 0 until then */
    char reply[32];  /* the first bytes of the reply, enough for the word shown in the trace */
    Py_ssize_t size, keys;  /* the size of the reply, and the number of keys */
    Py_ssize_t part, place, number;  /* in a batch: the part or `EACH_PART`, the place in the part, and the place in the batch */
} Traced;

enum { EACH_PART = -1 };

static PyTypeObject Turns_type, Traced_type;
static PyObject *s_number, *s_version, *s_name;

static int turns_traverse(Turns *self, visitproc visit, void *arg) {
    Py_VISIT(self->done);
    Py_VISIT(self->cluster);
    return 0;
}

static int turns_clear(Turns *self) {
    Py_CLEAR(self->done);
    Py_CLEAR(self->cluster);
    Py_CLEAR(self->last_epoch);
    return 0;
}

static void turns_dealloc(Turns *self) {
    PyObject_GC_UnTrack(self);
    turns_clear(self);
    PyMem_Free(self->lines);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static int turns_init(Turns *self, PyObject *args, PyObject *kwargs) {
    if (kwargs || !PyArg_ParseTuple(args, "L", &self->every) || self->every < 1) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "expected a number of at least 1");
        return -1;
    }
    self->left = 1;
    self->offset = -1;
    return 0;
}

/* Returns the lines of finished requests since the last call, and their number. */
static PyObject *turns_take_lines(Turns *self, PyObject *ignored) {
    PyObject *lines = Py_BuildValue("y#n", self->lines ? self->lines : "", self->used, self->count);
    if (lines) self->used = self->count = 0;
    return lines;
}

/* Counts a request, and returns whether it is traced. */
static PyObject *turns_passes(Turns *self, PyObject *ignored) {
    if (self->left > 1) {
        self->left--;
        Py_RETURN_FALSE;
    }
    self->left = self->every;
    Py_RETURN_TRUE;
}

static PyObject *turns_is_near(Turns *self, PyObject *ignored) { return PyBool_FromLong(self->left <= 2); }

static PyMethodDef turns_methods[] = {
    {"is_near", (PyCFunction)turns_is_near, METH_NOARGS, "Return whether the next request, or the one after it, is traced."},
    {"passes", (PyCFunction)turns_passes, METH_NOARGS, "Count a request, and return whether it is traced."},
    {"take_lines", (PyCFunction)turns_take_lines, METH_NOARGS, "Return the lines since the last call, and their number."},
    {NULL},
};

static PyMemberDef turns_members[] = {
    {"left", T_LONGLONG, offsetof(Turns, left), 0, NULL},
    {"every", T_LONGLONG, offsetof(Turns, every), READONLY, NULL},
    {"done", T_OBJECT, offsetof(Turns, done), 0, NULL},
    {"cluster", T_OBJECT, offsetof(Turns, cluster), 0, NULL},
    {"offset", T_LONGLONG, offsetof(Turns, offset), 0, NULL},
    {NULL},
};
static PyTypeObject Turns_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.proxy._native.Turns",
    .tp_basicsize = sizeof(Turns),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Determines which request is traced next.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)turns_init,
    .tp_traverse = (traverseproc)turns_traverse,
    .tp_clear = (inquiry)turns_clear,
    .tp_dealloc = (destructor)turns_dealloc,
    .tp_methods = turns_methods,
    .tp_members = turns_members,
};

/* Returns whether requests are traced without Python. */
static int traces(const Turns *turns) { return turns->cluster && turns->done && PyList_CheckExact(turns->done); }

/* Returns how many requests may be forwarded together: at most one of them is traced, or none if Python does the tracing. */
static long long most_together(const Turns *turns) { return turns->left - 1 + (traces(turns) ? turns->every : 0); }

/* Returns an object for the next request, whose line begins at `start`; steals the reference to the name of its node. */
static Traced *traced_of(Turns *turns, PyObject *executor, PyObject *name, const char *start, Py_ssize_t size) {
    Traced *self = PyObject_New(Traced, &Traced_type);
    if (!self) {
        Py_XDECREF(name);
        return NULL;
    }
    self->lone = NULL;
    self->sent = self->received = self->replied = 0;
    self->size = self->part = self->place = self->number = 0;
    self->turns = (Turns *)Py_NewRef((PyObject *)turns);
    self->node = name;
    self->epoch = self->request = NULL;
    self->client = name ? PyObject_GetAttr(executor, s_number) : NULL;
    self->epoch = self->client ? PyObject_GetAttr(turns->cluster, s_version) : NULL;
    const char *end = line_end(start, start + size);
    if (end) size = end - start;
    self->keys = 1;
    if (size > 4 && !memcmp(start, "get ", 4)) {
        const char *first = memchr(start + 4, ' ', size - 4);
        for (const char *at = first; at; at = memchr(at + 1, ' ', start + size - at - 1)) self->keys++;
        if (first) size = first - start;  /* the other keys are only counted */
    }
    self->request = self->epoch ? PyBytes_FromStringAndSize(start, size) : NULL;
    if (!self->request || (self->arrival = nanoseconds()) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return self;
}

static PyObject *name_of(PyObject *node) {
    return Py_IS_TYPE(node, known.node) ? get(node, &known.name) : PyObject_GetAttr(node, s_name);
}

static void traced_dealloc(Traced *self) {
    Py_XDECREF((PyObject *)self->lone);
    Py_XDECREF((PyObject *)self->turns);
    Py_XDECREF(self->client);
    Py_XDECREF(self->epoch);
    Py_XDECREF(self->node);
    Py_XDECREF(self->request);
    PyObject_Free(self);
}

/* Arranges to note the time at which the request is written to the node's connection. */
static int traced_await(Traced *self, PyObject *node) {
    PyObject *queue = get(node, &known.queue);
    Py_ssize_t waiting = queue ? PyObject_Size(queue) : -1;
    Py_XDECREF(queue);
    if (waiting < 1 || self->received) return waiting < 0 ? -1 : 0;  /* it was refused, or sent to the gutter */
    PyObject *unsent = get(node, &known.unsent);
    int failed = !unsent;
    if (unsent && PyList_CheckExact(unsent)) failed = PyList_Append(unsent, (PyObject *)self);
    else if (unsent) {
        PyObject *list = PyList_New(1);
        if (list) PyList_SET_ITEM(list, 0, Py_NewRef((PyObject *)self));
        failed = set_new(node, &known.unsent, list);
    }
    Py_XDECREF(unsent);
    return failed ? -1 : 0;
}

/* Notes that requests are written now: `Node._note_sent`. */
static int note_sent(PyObject *node, PyObject *unsent) {
    long long now = nanoseconds();
    if (now < 0) return -1;
    for (Py_ssize_t i = 0; PyList_CheckExact(unsent) && i < PyList_GET_SIZE(unsent); i++) {
        PyObject *one = PyList_GET_ITEM(unsent, i);
        if (Py_IS_TYPE(one, &Traced_type)) ((Traced *)one)->sent = now;
    }
    return put(node, &known.unsent, Py_None);
}

/* Takes the node's reply. */
static int traced_receive(Traced *self, const char *reply, Py_ssize_t size) {
    if (self->received) return 0;
    self->size = size;
    memcpy(self->reply, reply, size < (Py_ssize_t)sizeof self->reply ? (size_t)size : sizeof self->reply);
    self->received = nanoseconds();
    return self->received > 0 ? 0 : -1;
}

static Py_ssize_t traced_kept(const Traced *self) {
    return self->size < (Py_ssize_t)sizeof self->reply ? self->size : (Py_ssize_t)sizeof self->reply;
}

static char plain[256];  /* which bytes need no quotes in a CSV file, and do not end a word */

static void find_plain(void) {
    for (int byte = 0; byte < 256; byte++) plain[byte] = byte > ' ' && byte < 0x7f && byte != '"' && byte != ',';
}

/* Returns the length of a word that needs no quotes, or -1. */
static int plain_word(const char *text, Py_ssize_t size) {
    const unsigned char *at = (const unsigned char *)text;
    int length = 0;
    while (length < size && plain[at[length]]) length++;
    return length < size && at[length] > ' ' ? -1 : length;
}

/* Returns the length of words between which are single spaces, or -1. */
static int plain_words(const char *text, Py_ssize_t size) {
    int length = 0;
    while (length < size && (plain[(unsigned char)text[length]] || (text[length] == ' ' && length))) length++;
    return length < size ? -1 : length;
}

/* Writes a field of a line, and the comma after it. */
static char *write_number(char *to, long long number) {
    to += write_digits(to, number);
    *to++ = ',';
    return to;
}

static char *write_text(char *to, const char *text, Py_ssize_t size) {
    memcpy(to, text, size);
    to[size] = ',';
    return to + size + 1;
}

/* Writes a time, most of whose digits are mostly those of an earlier one. */
static char *write_time(char *to, long long time, long long earlier, const char *digits, int size) {
    enum { LAST = 10000, LAST_DIGITS = 4 };
    if (size <= LAST_DIGITS || time / LAST != earlier / LAST) return write_number(to, time);
    to = write_text(to, digits, size);
    int last = (int)(time % LAST);
    for (int i = 2; i < 2 + LAST_DIGITS; i++, last /= 10) to[-i] = (char)('0' + last % 10);
    return to;
}

/* Writes its line in the trace, without the keys' names. A line that needs quotes is left to Python. Memory that was written
 * just before is still in the processor's cache: to write all lines periodically takes longer. Returns whether it did, or -1. */
static int write_line(Traced *self) {
    enum { MOST_OF_NAME = 512, MOST_OF_WORD = 32, MOST_OF_LINE = MOST_OF_NAME + 2 * MOST_OF_WORD + 400 };
    Turns *turns = self->turns;
    if (turns->offset < 0) return 0;
    if (self->epoch != turns->last_epoch) {
        turns->epoch = PyLong_AsLongLong(self->epoch);
        if (PyErr_Occurred()) return -1;
        Py_XSETREF(turns->last_epoch, Py_NewRef(self->epoch));
    }
    Py_ssize_t size;
    const char *node = PyUnicode_AsUTF8AndSize(self->node, &size), *request = PyBytes_AS_STRING(self->request);
    long long offset = turns->offset, client = node ? PyLong_AsLongLong(self->client) : -1;
    if (PyErr_Occurred()) return -1;
    int named = plain_words(node, size), command = plain_word(request, PyBytes_GET_SIZE(self->request));
    int result = plain_word(self->reply, traced_kept(self));
    if (named != size || size > MOST_OF_NAME || command < 1 || command > MOST_OF_WORD || result < 1 || client < 0
        || turns->epoch < 0) return 0;
    if (turns->used + MOST_OF_LINE > turns->room) {
        Py_ssize_t room = turns->room * 2 + MOST_OF_LINE;
        char *larger = PyMem_Realloc(turns->lines, room);
        if (!larger) return PyErr_NoMemory(), -1;
        turns->lines = larger;
        turns->room = room;
    }
    char *end = write_number(turns->lines + turns->used, client);
    const char *digits = end;
    long long arrival = (self->arrival + offset) / 1000;
    end = write_number(end, arrival);
    int number = (int)(end - digits - 1);
    end = write_text(end, "0", 1);
    end = write_text(end, digits, number);
    end = write_text(end, digits, number);
    end = self->sent ? write_time(end, (self->sent + offset) / 1000, arrival, digits, number) : write_text(end, "", 0);
    end = write_time(end, (self->received + offset) / 1000, arrival, digits, number);
    end = write_time(end, (self->replied + offset) / 1000, arrival, digits, number);
    end = write_text(end, "", 0);
    end = write_text(end, request, command);
    end = write_number(end, self->keys);
    end = write_text(end, node, size);
    end = write_text(end, self->reply, result);
    end = write_number(end, self->size);
    end = write_number(end, turns->epoch);
    end[-1] = '\n';
    turns->used = end - turns->lines;
    turns->count++;
    return 1;
}

/* Notes that the client has its reply. */
static int traced_replied(Traced *self) {
    if (self->replied) return 0;
    if ((self->replied = nanoseconds()) < 0) return -1;
    int written = write_line(self);
    if (written || !traces(self->turns)) return written < 0 ? -1 : 0;
    return PyList_Append(self->turns->done, (PyObject *)self);
}

static PyObject *lone_answer(Lone *lone, PyObject *reply), *lone_fail(Lone *lone, PyObject *error);
static int lone_reads(Lone *lone);

/* Passes its reply, or an error, to the lone request. */
static PyObject *traced_pass(Traced *self, PyObject *reply, PyObject *(*pass)(Lone *, PyObject *)) {
    Lone *lone = self->lone;
    if (!lone || !PyBytes_CheckExact(reply)) return PyErr_Format(PyExc_ValueError, "no reply is expected, or it is not bytes");
    self->lone = NULL;
    PyObject *result = traced_receive(self, PyBytes_AS_STRING(reply), PyBytes_GET_SIZE(reply)) ? NULL : pass(lone, reply);
    Py_DECREF((PyObject *)lone);
    if (result && traced_replied(self)) Py_CLEAR(result);
    return result;
}

static PyObject *traced_answer(Traced *self, PyObject *reply) { return traced_pass(self, reply, lone_answer); }
static PyObject *traced_fail(Traced *self, PyObject *error) { return traced_pass(self, error, lone_fail); }
static PyObject *traced_ready(Traced *self, PyObject *ignored) { Py_RETURN_NONE; }

static PyObject *traced_is_replied(Traced *self, PyObject *replies) {
    if (traced_replied(self)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *traced_reads(Traced *self, void *ignored) {
    return PyBool_FromLong(self->lone ? lone_reads(self->lone) : 1);
}

static PyMethodDef traced_methods[] = {
    {"answer", (PyCFunction)traced_answer, METH_O, "Take the reply."},
    {"fail", (PyCFunction)traced_fail, METH_O, "Take the error that stands for the reply."},
    {"ready", (PyCFunction)traced_ready, METH_NOARGS, "Do nothing."},
    {"replied", (PyCFunction)traced_is_replied, METH_O, "Note that the client has its reply."},
    {NULL},
};
static PyMemberDef traced_members[] = {
    {"client", T_OBJECT_EX, offsetof(Traced, client), READONLY, NULL},
    {"epoch", T_OBJECT_EX, offsetof(Traced, epoch), READONLY, NULL},
    {"node", T_OBJECT_EX, offsetof(Traced, node), READONLY, NULL},
    {"request", T_OBJECT_EX, offsetof(Traced, request), READONLY, NULL},
    {"size", T_PYSSIZET, offsetof(Traced, size), READONLY, NULL},
    {"keys", T_PYSSIZET, offsetof(Traced, keys), READONLY, NULL},
    {"arrival", T_LONGLONG, offsetof(Traced, arrival), READONLY, NULL},
    {"sent", T_LONGLONG, offsetof(Traced, sent), 0, NULL},
    {"received", T_LONGLONG, offsetof(Traced, received), READONLY, NULL},
    {"replied_at", T_LONGLONG, offsetof(Traced, replied), READONLY, NULL},
    {NULL},
};
static PyObject *traced_reply(Traced *self, void *ignored) {
    return PyBytes_FromStringAndSize(self->reply, traced_kept(self));
}

static PyGetSetDef traced_getset[] = {
    {"reply", (getter)traced_reply, NULL, "The beginning of its reply.", NULL},
    {"reads", (getter)traced_reads, NULL, "Whether it changes nothing.", NULL},
    {NULL},
};
static PyTypeObject Traced_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.proxy._native.Traced",
    .tp_basicsize = sizeof(Traced),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "A request that is traced.",
    .tp_dealloc = (destructor)traced_dealloc,
    .tp_methods = traced_methods,
    .tp_members = traced_members,
    .tp_getset = traced_getset,
};
