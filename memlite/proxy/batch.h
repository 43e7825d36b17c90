/* Requests of a client that arrived together: JoinedBatch in parts.py, whose counterpart in Python is Batch in batch.py; and
 * their delivery, `Cluster.deliver` and `OrderedReplies.deliver`. */

struct Batch {
    PyObject_VAR_HEAD
    PyObject *executor, *reply, *observer, *order;  /* `order` has, for each request, the index of its part */
    Lone *lone;  /* the executor's, if it is known; it tells what the executor has to do */
    Py_ssize_t known, missing, sent;  /* parts, incomplete parts, and replies that were sent before others arrived */
    char closes, waits, failed;
    PyObject *unusual, *answered_by_all;  /* see multiget.h */
    Part *parts[];
};

static PyObject *s_answered, *s_count_failure, *s_deliver, *s_lone, *s_progressed, *s_send_progress;

/* Drops the parts early, as they refer to the batch. */
static void batch_drop_parts(Batch *self) {
    Py_ssize_t known = self->known;
    self->known = 0;
    for (Py_ssize_t i = 0; i < known; i++) Py_CLEAR(self->parts[i]);
}

/* Returns a batch, or a get of several keys, with room for `most` parts. */
static Batch *batch_of(PyTypeObject *type, PyObject *executor, Lone *lone, PyObject *order, Py_ssize_t most) {
    Batch *self = PyObject_NewVar(Batch, type, most);
    if (!self) return NULL;
    self->executor = Py_NewRef(executor);
    self->order = Py_NewRef(order);
    self->lone = (Lone *)Py_XNewRef((PyObject *)lone);
    self->reply = self->observer = self->unusual = self->answered_by_all = NULL;
    self->known = self->missing = self->sent = 0;
    self->closes = self->waits = self->failed = 0;
    return self;
}

static PyObject *batch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *executor, *order;
    if (kwargs || !PyArg_ParseTuple(args, "OO!", &executor, &PyBytes_Type, &order)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "keyword arguments are not supported");
        return NULL;
    }
    return (PyObject *)batch_of(type, executor, NULL, order, PyBytes_GET_SIZE(order));
}

static void batch_dealloc(Batch *self) {
    batch_drop_parts(self);
    Py_XDECREF(self->executor);
    Py_XDECREF(self->reply);
    Py_XDECREF(self->observer);
    Py_XDECREF(self->order);
    Py_XDECREF(self->unusual);
    Py_XDECREF(self->answered_by_all);
    Py_XDECREF((PyObject *)self->lone);
    PyObject_Free(self);
}

/* Returns the receiver of the next node's replies, as a borrowed reference; `request` is NULL unless it is for several keys. */
static Part *batch_add(Batch *self, Py_ssize_t count, int reads, PyObject *request) {
    if (self->known == Py_SIZE(self) || self->known == 256)
        return PyErr_Format(PyExc_ValueError, "the batch already has a part for each request"), NULL;
    if (count < 1 || count > 1 << 20) return PyErr_Format(PyExc_ValueError, "the count is too small or too large"), NULL;
    Part *part = part_of(self, self->known, count, reads, request);
    if (!part) return NULL;
    self->missing++;
    return self->parts[self->known++] = part;
}

static PyObject *batch_part(Batch *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"count", "reads", NULL};
    Py_ssize_t count;
    int reads;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n$p", names, &count, &reads)) return NULL;
    return Py_XNewRef((PyObject *)batch_add(self, count, reads, NULL));
}

/* Returns the traced request of a batch, as a borrowed reference; NULL if none is traced. */
static Traced *batch_traced(const Batch *self) {
    return self->observer && Py_IS_TYPE(self->observer, &Traced_type) ? (Traced *)self->observer : NULL;
}

/* Notes the reply to the traced request, if it has arrived. */
static int batch_look(Batch *self) {
    Traced *traced = batch_traced(self);
    if (!traced || traced->received || traced->part < 0 || traced->part >= self->known) return 0;
    const Part *part = self->parts[traced->part];
    if (part->have <= traced->place) return 0;
    Py_ssize_t from = traced->place ? part->ends[traced->place - 1] : 0;
    return traced_receive(traced, PyBytes_AS_STRING(part->buffer) + from, part->ends[traced->place] - from);
}

static int batch_answered(Batch *self) {
    Lone *lone = self->lone;
    if (!lone || !lone->dues || !PyList_CheckExact(lone->dues)) return call(self->executor, s_answered);
    if (lone->due) return 0;
    lone->due = 1;
    return PyList_Append(lone->dues, self->executor);
}

/* Notes that some replies have arrived. They are sent soon, as the others may take long. */
static int batch_progressed(Batch *self) {
    Lone *lone = self->lone;
    if (batch_look(self)) return -1;
    self->waits = 1;
    if (!lone || !lone->partly || !PyList_CheckExact(lone->partly)) return call(self->executor, s_progressed);
    if (lone->progresses) return 0;
    if (!PyList_GET_SIZE(lone->partly)) return call(self->executor, s_progressed);  /* this starts a timer */
    lone->progresses = 1;
    return PyList_Append(lone->partly, self->executor);
}

/* Notes that all replies of a node have arrived. */
static int batch_part_done(Batch *self) {
    if (batch_look(self)) return -1;
    if (--self->missing) return self->waits ? 0 : batch_progressed(self);
    Py_ssize_t number;
    PyObject *reply = join_parts(self->order, self->parts, self->known, self->sent, "", &number);
    if (!reply) return -1;
    Py_XSETREF(self->reply, reply);
    int failed = batch_answered(self);
    batch_drop_parts(self);
    return failed;
}

static int batch_count_failures(Batch *self, Py_ssize_t number) {
    for (; number > 0; number--) if (call(self->executor, s_count_failure)) return -1;
    return 0;
}

static PyObject *batch_available(Batch *self, PyObject *ignored) {
    PyObject *ready = join_parts(self->order, self->parts, self->known, self->sent, "", &self->sent);
    if (!ready) return NULL;
    Traced *traced = batch_traced(self);
    if (traced && self->sent > traced->number && traced_replied(traced)) {
        Py_DECREF(ready);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < self->known; i++)  /* replies that were sent need not be kept */
        if (!part_left(self->parts[i]) && part_forget(self->parts[i])) {
            Py_DECREF(ready);
            return NULL;
        }
    self->waits = 0;
    return ready;
}

static PyObject *batch_discard(Batch *self, PyObject *ignored) {
    if (self->reply && self->reply != Py_None) {
        PyObject *nothing = PyBytes_FromStringAndSize(NULL, 0);
        if (!nothing) return NULL;
        Py_SETREF(self->reply, nothing);
    }
    for (Py_ssize_t i = 0; i < self->known; i++) if (part_forget(self->parts[i])) return NULL;
    Py_RETURN_NONE;
}

static Py_ssize_t batch_size(const Batch *self) {
    Py_ssize_t held = self->reply && PyBytes_Check(self->reply) ? PyBytes_GET_SIZE(self->reply) : 0;
    for (Py_ssize_t i = 0; i < self->known; i++) held += part_left(self->parts[i]);
    return held;
}

static PyObject *batch_held(Batch *self, void *ignored) { return PyLong_FromSsize_t(batch_size(self)); }

static PyObject *batch_count(Batch *self, void *ignored) { return PyLong_FromSsize_t(PyBytes_GET_SIZE(self->order)); }

static PyMethodDef batch_methods[] = {
    {"part", (PyCFunction)(void (*)(void))batch_part, METH_VARARGS | METH_KEYWORDS, "Return the receiver of the next node's replies."},
    {"available", (PyCFunction)batch_available, METH_NOARGS, "Return the replies that can be sent although others are missing."},
    {"discard", (PyCFunction)batch_discard, METH_NOARGS, "Forget the requests that have been answered."},
    {NULL},
};
static PyMemberDef batch_members[] = {
    {"reply", T_OBJECT, offsetof(Batch, reply), 0, NULL},
    {"observer", T_OBJECT, offsetof(Batch, observer), 0, NULL},
    {"closes", T_BOOL, offsetof(Batch, closes), 0, NULL},
    {"waits", T_BOOL, offsetof(Batch, waits), 0, NULL},
    {NULL},
};
static PyGetSetDef batch_getset[] = {
    {"count", (getter)batch_count, NULL, "How many requests there are.", NULL},
    {"held", (getter)batch_held, NULL, "The size in bytes of the replies received and not sent.", NULL},
    {NULL},
};
static PyTypeObject Batch_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.proxy._native.Batch",
    .tp_basicsize = sizeof(Batch),
    .tp_itemsize = sizeof(Part *),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Requests whose replies are sent together.",
    .tp_new = batch_new,
    .tp_dealloc = (destructor)batch_dealloc,
    .tp_methods = batch_methods,
    .tp_members = batch_members,
    .tp_getset = batch_getset,
};

/* Sends requests to a node that is not limited, without checking its state: `Node.send_batch`. */
static int send_batch(PyObject *node, PyObject *requests, Part *part) {
    PyObject *queue = get(node, &known.queue), *pending = queue ? get(node, &known.pending) : NULL, *result;
    int failed = -1;
    if (!pending || !PyList_CheckExact(queue)) goto done;
    if (!PyList_GET_SIZE(queue) && flush_next(node)) goto done;
    long long more = part->missing - 1;
    if (more) {
        long long before = get_number(node, &known.in_batches);
        if ((before < 0 && PyErr_Occurred()) || put_number(node, &known.in_batches, before + more)) goto done;
    }
    PyObject *with[] = {pending, (PyObject *)part};
    if (PyList_Append(queue, requests)) goto done;
    result = PyObject_Vectorcall(known.append, with, 2, NULL);
    failed = result ? 0 : -1;
    Py_XDECREF(result);
done:
    Py_XDECREF(queue);
    Py_XDECREF(pending);
    return failed;
}

/* Traces the request whose turn it is, if it is among the requests found; returns 0 or -1. */
static int trace_batch(Batch *batch, Turns *turns, PyObject *data, const Requests *found) {
    Py_ssize_t number = (Py_ssize_t)turns->left - 1;
    if (number >= found->number) {
        turns->left -= found->number;
        return 0;
    }
    Py_ssize_t part = found->order[number], from = found->froms[number];
    Traced *traced = traced_of(turns, batch->executor, name_of(found->shares[part].node), PyBytes_AS_STRING(data) + from,
                               found->end - from);
    if (!traced) return -1;
    traced->number = number;
    traced->part = part;
    for (Py_ssize_t i = 0; i < number; i++) traced->place += found->order[i] == part;
    turns->left += turns->every - found->number;
    batch->observer = (PyObject *)traced;
    return 0;
}

/* Adds a batch to the requests of a client that are in progress; returns 0 or -1. */
static int begin_batch(Lone *lone, Batch *batch) {
    PyObject *with[] = {lone->others, (PyObject *)batch};
    PyObject *result = end_thinking(lone) ? NULL : PyObject_Vectorcall(known.append, with, 2, NULL);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Sends the nodes their requests, if none of them is limited; returns 0 or -1. */
static int send_requests(Batch *batch, const Share *shares, PyObject *const *requests) {
    Traced *traced = batch_traced(batch);
    Py_ssize_t parts = batch->known;
    int failed = 0;
    for (Py_ssize_t i = 0; i < parts; i++) Py_INCREF(shares[i].node);
    for (Py_ssize_t i = 0; i < parts && !failed; i++)
        failed = send_batch(shares[i].node, requests[i], batch->parts[i])
            || (traced && traced->part == i && traced_await(traced, shares[i].node));
    for (Py_ssize_t i = 0; i < parts; i++) Py_DECREF(shares[i].node);
    return failed ? -1 : 0;
}

/* Forwards several known requests; returns how many bytes of `data` they took, 0 if they are left to Python, or -1. */
static Py_ssize_t take_batch(Lone *lone, PyObject *data) {
    Requests found;
    PyObject *requests[MOST_OWNERS];
    Turns *turns = lone->turns;
    Py_ssize_t most = turns && most_together(turns) < FEW ? (Py_ssize_t)most_together(turns) : FEW;
    if (!writes_replies(lone)) return 0;
    if (find_requests(data, lone->by_line, lone->nodes, most, (long)lone->most, (PyObject *)known.node, &found)) return -1;
    if (found.number < 2 || (found.end < PyBytes_GET_SIZE(data) && found.number < most)) return 0;
    for (int i = 0; i < found.known; i++) {
        int is = is_same(found.shares[i].node, &known.limited, Py_False);
        if (is < 1) return is;
    }
    PyObject *order = PyBytes_FromStringAndSize((char *)found.order, found.number);
    Batch *batch = order ? batch_of(&Batch_type, lone->executor, lone, order, found.known) : NULL;
    Py_XDECREF(order);
    if (!batch || new_copies(found.shares, found.known, 0, requests)) {
        Py_XDECREF((PyObject *)batch);
        return -1;
    }
    copy_to_shares(data, &found);
    int failed = 0;
    for (int i = 0; i < found.known && !failed; i++) failed = !batch_add(batch, found.shares[i].count, found.reads, NULL);
    failed = failed || (turns && trace_batch(batch, turns, data, &found)) || begin_batch(lone, batch)
        || send_requests(batch, found.shares, requests);
    if (failed) batch_drop_parts(batch);
    Py_DECREF((PyObject *)batch);
    for (int i = 0; i < found.known; i++) Py_DECREF(requests[i]);
    return failed ? -1 : found.end;
}

static Lone *lone_of_executor(PyObject *executor) {
    PyObject *lone = PyObject_GetAttr(executor, s_lone);
    if (!lone) return NULL;
    if (!Py_IS_TYPE(lone, &Lone_type)) {
        Py_DECREF(lone);
        return (Lone *)(PyErr_Format(PyExc_TypeError, "expected an executor with a `Lone`"), NULL);
    }
    return (Lone *)lone;
}

/* Returns the first of the requests that a client waits for, as a borrowed reference, if it is a batch whose replies so far may
 * be written at once; NULL otherwise, or with an error. A get of several keys counts as a batch. */
static Batch *first_batch(Lone *lone, Py_ssize_t *waiting) {
    if (!lone->write || lone->write == Py_None || !lone->counters || !lone->others || !lone->out || !PyList_CheckExact(lone->out)
        || PyList_GET_SIZE(lone->out) || (*waiting = PyObject_Size(lone->others)) < 1) return NULL;
    PyObject *first = PySequence_GetItem(lone->others, 0);
    Py_XDECREF(first);  /* the queue has it */
    return first && (Py_IS_TYPE(first, &Batch_type) || Py_IS_TYPE(first, &MultiGet_type)) ? (Batch *)first : NULL;
}

/* Writes replies to a client; 0 or -1. */
static int write_replies(PyObject *executor, Lone *lone, PyObject *replies, Written *written) {
    PyObject *write = lone->write;
    Py_ssize_t size = PyBytes_GET_SIZE(replies);
    if (!size) return 0;
    if (written->counters != lone->counters) {
        if (add_written(written)) return -1;
        Py_XSETREF(written->counters, Py_NewRef(lone->counters));
    }
    written->bytes += size;
    Py_INCREF(write);
    int failed = write_with(write, replies, 0, size);
    Py_DECREF(write);
    return failed ? -1 : lone->write == write ? 0 : call(executor, s_wrote);  /* calls `wrote` if the client has stopped reading */
}

/* Writes the reply to a batch if the client waits for nothing else; returns whether it did, or -1. */
static int deliver_batch(PyObject *executor, Lone *lone, Written *written) {
    Py_ssize_t waiting = 0;
    Batch *batch = first_batch(lone, &waiting);
    if (!batch) return PyErr_Occurred() ? -1 : 0;
    if (waiting > 1 || !batch->reply || !PyBytes_CheckExact(batch->reply) || batch->closes
        || (batch->observer && batch->observer != Py_None && !batch_traced(batch))) return 0;
    PyObject *first = PyObject_Vectorcall(known.popleft, &lone->others, 1, NULL);
    if (!first) return -1;
    lone->due = 0;
    Traced *traced = batch_traced((Batch *)first);
    int failed = write_replies(executor, lone, ((Batch *)first)->reply, written) || begin_thinking(lone) || (traced && traced_replied(traced));
    Py_DECREF(first);
    return failed ? -1 : 1;
}

/* Writes the replies so far to a batch that is the first request a client waits for; returns whether it did, or -1. */
static int progress_batch(PyObject *executor, Lone *lone, Written *written) {
    Py_ssize_t waiting = lone->others ? PyObject_Size(lone->others) : 0;
    if (waiting < 0) return -1;
    Batch *batch = waiting ? first_batch(lone, &waiting) : NULL;
    if (!batch && waiting) return PyErr_Occurred() ? -1 : 0;
    lone->progresses = 0;
    if (!batch || !batch->waits) return 1;  /* everything has been sent in the meantime */
    PyObject *ready = batch_available(batch, NULL);
    int failed = ready ? write_replies(executor, lone, ready, written) : -1;
    Py_XDECREF(ready);
    return failed ? -1 : 1;
}

/* Empties a list of executors, and for each calls a C function, or a method if that declines; returns 0 or -1. */
static int do_for_all(PyObject *list, int (*usual)(PyObject *, Lone *, Written *), PyObject *otherwise, Written *written) {
    PyObject *now = PyList_GetSlice(list, 0, PyList_GET_SIZE(list));
    int failed = !now || PyList_SetSlice(list, 0, PyList_GET_SIZE(list), NULL);
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(now); i++) {
        PyObject *executor = PyList_GET_ITEM(now, i);
        Lone *lone = lone_of_executor(executor);
        int done = lone ? usual(executor, lone, written) : -1;
        failed = done < 0 || (!done && call(executor, otherwise));
        Py_XDECREF((PyObject *)lone);
    }
    Py_XDECREF(now);
    return failed ? -1 : 0;
}

/* Counts the bytes written, even after an error; an earlier error takes precedence. Returns None, or NULL with an error. */
static PyObject *end_of_writes(Written *written, int failed) {
    PyObject *error[3];
    PyErr_Fetch(&error[0], &error[1], &error[2]);
    if (add_written(written) && !error[0]) failed = 1;
    else if (error[0]) PyErr_Restore(error[0], error[1], error[2]);
    Py_XDECREF(written->counters);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

/* Sends the replies of the executors in a list. */
static PyObject *deliver(PyObject *self, PyObject *dues) {
    if (!PyList_CheckExact(dues) || !known.popleft) return PyErr_Format(PyExc_TypeError, "expected a list, and nodes must be known");
    Written written = {NULL, 0};
    int failed = 0;
    while (!failed && PyList_GET_SIZE(dues)) failed = do_for_all(dues, deliver_batch, s_deliver, &written);
    return end_of_writes(&written, failed);
}

/* Makes the executors in a list send their replies so far: `Cluster._send_progress`. */
static PyObject *send_progress(PyObject *self, PyObject *partly) {
    if (!PyList_CheckExact(partly)) return PyErr_Format(PyExc_TypeError, "expected a list");
    Written written = {NULL, 0};
    return end_of_writes(&written, do_for_all(partly, progress_batch, s_send_progress, &written));
}
