/* Nodes and their connections, whose attributes `know` looks up: node.py and link.py. */

static struct {
    PyTypeObject *node, *link, *scheduler_type, *histogram, *timing_type;
    PyObject *one_part, *other_part;  /* types of receivers in Python */
    PyObject *monotonic, *monotonic_ns;
    PyObject *append, *popleft;  /* methods of the deques of receivers */
    long long many_pending;
    double between_times, between_its_times;  /* seconds */
    int usual_clock;  /* whether both clocks are the system's */
    Field limited, queue, pending, answered, last_sent, timed, last_timed, until, lease, lease_until, scheduler, flusher,
        flush_due, timer, of_node, in_batches, queued, timing, due, next_timed, retired, usual, owner, paused, write, service,
        asked, unsent, name, put_at, waits, thinks, queueing, all_service, thinking, lengths, longest,
        buckets, count, total, maximum;  /* these four are attributes of histograms */
} known;

static PyObject *s_append, *s_popleft;

/* Returns the time by the clock `monotonic_ns`, or -1 with an error. */
static long long nanoseconds(void) {
#ifdef __linux__
    struct timespec now;
    if (known.usual_clock && !clock_gettime(CLOCK_MONOTONIC, &now)) return now.tv_sec * 1000000000LL + now.tv_nsec;
#endif
    PyObject *moment = PyObject_CallNoArgs(known.monotonic_ns);
    long long found = moment ? PyLong_AsLongLong(moment) : -1;
    Py_XDECREF(moment);
    return found;
}

/* Returns the time by the clock `monotonic`, or -1 with an error. */
static double seconds(void) {
#ifdef __linux__
    if (known.usual_clock) return (double)nanoseconds() / 1e9;
#endif
    PyObject *moment = PyObject_CallNoArgs(known.monotonic);
    double found = moment ? PyFloat_AsDouble(moment) : -1;
    Py_XDECREF(moment);
    return found;
}

static int note_sent(PyObject *node, PyObject *unsent), note_written(PyObject *node, long long since, long long length);

/* Empties the queue of a node, whose entries are all bytes. A short queue keeps its memory: the next request comes soon. */
static int empty_queue(PyObject *queue) {
    enum { KEPT = 16 };
    Py_ssize_t count = PyList_GET_SIZE(queue);
    if (count > KEPT) return PyList_SetSlice(queue, 0, count, NULL);
    Py_SET_SIZE((PyVarObject *)queue, 0);
    while (count--) Py_DECREF(((PyListObject *)queue)->ob_item[count]);
    return 0;
}

/* Sends a node's queued requests, if nothing else is to be done; returns whether it did, or -1. */
static int flush_usual(PyObject *node) {
    PyObject *queue = get(node, &known.queue), *link = NULL, *data = NULL, *write = NULL, *timing = NULL,
        *asked = NULL, *unsent = NULL;
    int done = queue ? 0 : -1, is, times = 0;
    Py_ssize_t count = 0, total = 0;
    double now, due;
    if (done || !PyList_CheckExact(queue) || !(count = PyList_GET_SIZE(queue))) goto end;
    done = -1;
    if ((is = is_same(node, &known.timer, Py_None))) { done = is < 0 ? -1 : 0; goto end; }
    if (!(link = get(node, &known.of_node))) goto end;
    if (!PyObject_TypeCheck(link, known.link)) { done = 0; goto end; }
    if ((is = is_same(link, &known.paused, Py_False)) < 1) { done = is; goto end; }
    now = seconds();
    due = get_float(node, &known.until);
    if (PyErr_Occurred()) goto end;
    if (now >= due) { done = 0; goto end; }
    long long timed = get_number(node, &known.timed);
    if (timed == -1 && PyErr_Occurred()) goto end;
    if (!timed) {
        if (!(timing = get(node, &known.timing))) goto end;
        due = get_float(timing, &known.due);
        double next = get_float(node, &known.next_timed);
        if (PyErr_Occurred()) goto end;
        times = now >= due || now >= next;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *one = PyList_GET_ITEM(queue, i);
        if (!PyBytes_CheckExact(one)) { done = 0; goto end; }
        total += PyBytes_GET_SIZE(one);
    }
    if (count == 1) data = Py_NewRef(PyList_GET_ITEM(queue, 0));
    else if ((data = PyBytes_FromStringAndSize(NULL, total))) {
        char *to = PyBytes_AS_STRING(data);
        for (Py_ssize_t i = 0; i < count; i++) {
            PyObject *one = PyList_GET_ITEM(queue, i);
            memcpy(to, PyBytes_AS_STRING(one), PyBytes_GET_SIZE(one));
            to += PyBytes_GET_SIZE(one);
        }
    }
    if (!data || !(write = get(link, &known.write)) || !(asked = get(node, &known.asked)) || !(unsent = get(node, &known.unsent))) goto end;
    if (!Py_IS_TYPE(asked, &Asked_type)) { done = 0; goto end; }
    long long more = get_number(node, &known.in_batches), last = get_number(node, &known.last_sent);
    long long answered = get_number(node, &known.answered), put_at = get_number(node, &known.put_at);
    if (PyErr_Occurred() || (put_at && note_written(node, put_at, count + more))) goto end;
    last += count + more;
    long long since = times ? nanoseconds() : 0;
    for (Py_ssize_t i = 0; i < count; i++) if (asked_add((Asked *)asked, PyList_GET_ITEM(queue, i))) goto end;
    if (put_number(node, &known.last_sent, last) || empty_queue(queue)
        || (more && put_number(node, &known.in_batches, 0)) || put_number(node, &known.queued, 0)
        || put(node, &known.flush_due, Py_False)
        || put(node, &known.limited, last - answered > known.many_pending ? Py_True : Py_False)
        || (times && (set_new(node, &known.timed, since < 0 ? NULL : PyLong_FromLongLong(since))
                      || put_number(node, &known.last_timed, last)
                      || set_new(timing, &known.due, PyFloat_FromDouble(now + known.between_times))
                      || put(timing, &known.waits, Py_True) || put(timing, &known.thinks, Py_True)
                      || set_new(node, &known.next_timed, PyFloat_FromDouble(now + known.between_its_times))))
        || (unsent != Py_None && note_sent(node, unsent)) || write_with(write, data, 0, total)) goto end;
    done = 1;
end:
    Py_XDECREF(queue);
    Py_XDECREF(link);
    Py_XDECREF(data);
    Py_XDECREF(write);
    Py_XDECREF(timing);
    Py_XDECREF(unsent);
    Py_XDECREF(asked);
    return done;
}

static PyObject *know(PyObject *self, PyObject *args) {
    PyObject *node, *link, *deque, *one, *other, *monotonic, *monotonic_ns, *timing, *lease, *scheduler, *histogram;
    long long many;
    double between, between_its;
    if (!PyArg_ParseTuple(args, "O!O!O!OOO!O!O!O!OOLdd", &PyType_Type, &node, &PyType_Type, &link, &PyType_Type, &deque, &one,
                          &other, &PyType_Type, &timing, &PyType_Type, &lease, &PyType_Type, &scheduler, &PyType_Type,
                          &histogram, &monotonic, &monotonic_ns,
                          &many, &between, &between_its)) return NULL;
    struct { Field *field; PyObject *type; const char *name; } fields[] = {
        {&known.limited, node, "_limited"}, {&known.queue, node, "_queue"}, {&known.pending, node, "_pending"},
        {&known.answered, node, "_answered"}, {&known.last_sent, node, "_last_sent"}, {&known.timed, node, "_timed"},
        {&known.last_timed, node, "_last_timed"}, {&known.until, node, "_until"}, {&known.lease, node, "_lease"},
        {&known.lease_until, lease, "until"}, {&known.scheduler, node, "_scheduler"}, {&known.flusher, node, "_flusher"},
        {&known.flush_due, node, "_flush_due"}, {&known.timer, node, "_timer"}, {&known.of_node, node, "_link"},
        {&known.in_batches, node, "_in_batches"}, {&known.queued, node, "_queued"}, {&known.timing, node, "_timing"},
        {&known.due, timing, "due"}, {&known.next_timed, node, "_next_timed"}, {&known.retired, node, "_retired"},
        {&known.usual, link, "_usual"}, {&known.owner, link, "_owner"}, {&known.paused, link, "paused"},
        {&known.unsent, node, "_unsent"}, {&known.name, node, "name"}, {&known.put_at, node, "_put_at"},
        {&known.waits, timing, "waits"}, {&known.thinks, timing, "thinks"}, {&known.queueing, timing, "queueing"},
        {&known.all_service, timing, "service"}, {&known.thinking, timing, "thinking"}, {&known.lengths, timing, "lengths"},
        {&known.longest, timing, "longest"},
        {&known.write, link, "write"}, {&known.service, node, "service"}, {&known.asked, node, "_asked"},
        {&known.buckets, histogram, "_buckets"}, {&known.count, histogram, "count"},
        {&known.total, histogram, "total"}, {&known.maximum, histogram, "maximum"}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (find_field(fields[i].field, fields[i].type, fields[i].name)) return NULL;
    PyObject *clocks = PyImport_ImportModule("time"), *usual = clocks ? PyObject_GetAttrString(clocks, "monotonic") : NULL;
    PyObject *usual_ns = usual ? PyObject_GetAttrString(clocks, "monotonic_ns") : NULL;
    known.usual_clock = usual == monotonic && usual_ns == monotonic_ns;
    Py_XDECREF(clocks);
    Py_XDECREF(usual);
    Py_XDECREF(usual_ns);
    if (!usual_ns) return NULL;
    PyObject *append = PyObject_GetAttr(deque, s_append), *popleft = append ? PyObject_GetAttr(deque, s_popleft) : NULL;
    if (!popleft) {
        Py_XDECREF(append);
        return NULL;
    }
    Py_XSETREF(known.append, append);
    Py_XSETREF(known.popleft, popleft);
    Py_XSETREF(known.node, (PyTypeObject *)Py_NewRef(node));
    Py_XSETREF(known.link, (PyTypeObject *)Py_NewRef(link));
    Py_XSETREF(known.scheduler_type, (PyTypeObject *)Py_NewRef(scheduler));
    Py_XSETREF(known.timing_type, (PyTypeObject *)Py_NewRef(timing));
    Py_XSETREF(known.histogram, (PyTypeObject *)Py_NewRef(histogram));
    Py_XSETREF(known.one_part, Py_NewRef(one));
    Py_XSETREF(known.other_part, Py_NewRef(other));
    Py_XSETREF(known.monotonic, Py_NewRef(monotonic));
    Py_XSETREF(known.monotonic_ns, Py_NewRef(monotonic_ns));
    known.many_pending = many;
    known.between_times = between;
    known.between_its_times = between_its;
    Py_RETURN_NONE;
}
