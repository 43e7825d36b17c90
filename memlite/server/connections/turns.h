/* Input left over when a connection has used its share of commands: the counterpart of `Connection._keep_for_next_turn` and, in
the next turn, of `_continue`, for the usual case: the peer reads its replies, and nothing else waits to be sent. All other
cases are left to these methods. The connection keeps its runner meanwhile; only its state says that input has to wait.

Include this after the definition of Receiver. */

static int add_to(PyObject *owner, const Field *field, Py_ssize_t more) {
    PyObject *number = get(owner, field), *by = number ? PyLong_FromSsize_t(more) : NULL;
    int failed = set_new(owner, field, by ? PyNumber_Add(number, by) : NULL);
    Py_XDECREF(number);
    Py_XDECREF(by);
    return failed;
}

static int set_size(PyObject *owner, const Field *field, Py_ssize_t size) {
    return set_new(owner, field, PyLong_FromSsize_t(size));
}

static Py_ssize_t size_in(PyObject *owner, const Field *field) {
    PyObject *number = get(owner, field);
    Py_ssize_t size = number ? PyLong_AsSsize_t(number) : -1;
    Py_XDECREF(number);
    return size;
}

/* `Connection._hold` */
static int hold(Receiver *r, PyObject *connection, PyObject *services, Py_ssize_t size) {
    Py_ssize_t before = size_in(connection, &r->held);
    if (before == -1 && PyErr_Occurred()) return -1;
    if (before == size) return 0;
    /* Update both counts or neither: create the number first. */
    PyObject *intake = PyObject_GetAttr(services, r->intake), *number = intake ? PyLong_FromSsize_t(size) : NULL;
    int failed = !number || add_to(intake, &r->all_held, size - before) || set_new(connection, &r->held, Py_NewRef(number));
    Py_XDECREF(number);
    Py_XDECREF(intake);
    return failed ? -1 : 0;
}

/* After a full read, read less at a time. */
static int slow_down(Receiver *r, PyObject *connection, PyObject *services) {
    PyObject *intake = PyObject_GetAttr(services, r->intake), *transport = intake ? get(connection, &r->transport) : NULL;
    PyObject *done = transport ? call_method(intake, r->slow_down, transport) : NULL;
    Py_XDECREF(intake);
    Py_XDECREF(transport);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Returns where the next turn begins if the run that has just ended has used its share; 0 if not. */
static Py_ssize_t next_turn(Receiver *r, PyObject *run) {
    PyObject *runner = PyCFunction_Check(run) ? PyCFunction_GET_SELF(run) : NULL;
    PyObject *number = runner ? PyObject_GetAttr(runner, r->next_turn) : NULL;
    if (!number) return runner ? -1 : 0;
    Py_ssize_t position = PyLong_AsSsize_t(number);
    Py_DECREF(number);
    return position;
}

/* Writes the replies of the turn, in `out`, and keeps the rest of the input, from `position`, for the next turn. Returns 0,
or -1 on error. A positive result means that this is not the usual case, and that nothing has been done. */
static int end_turn(Receiver *r, Reception *b, PyObject *data, PyObject *out, Py_ssize_t begin, Py_ssize_t position) {
    PyObject *connection = b->connection;
    Py_ssize_t size = PyBytes_GET_SIZE(data), replies = PyList_GET_SIZE(out);
    if (replies > 1 || (replies && !PyBytes_CheckExact(PyList_GET_ITEM(out, 0)))) return 1;
    int failed = is(connection, &r->unsent, Py_None);
    if (failed != 1) return failed < 0 ? -1 : 1;
    PyObject *counters = get(connection, &r->counters), *services = get(connection, &r->services), *done = NULL;
    failed = !counters || !services || note_activity(r, connection) || add_to(counters, &r->until_slow_sample, -1)
        || (!begin && add_to(counters, &r->bytes_read, size - position))
        || set_new(connection, &r->pending_input, Py_NewRef(data)) || set_size(connection, &r->begin, position);
    if (!failed && replies) {
        PyObject *reply = Py_NewRef(PyList_GET_ITEM(out, 0));
        failed = PyList_SetSlice(out, 0, 1, NULL) || add_to(counters, &r->bytes_written, PyBytes_GET_SIZE(reply))
            || !(done = send_reply(r, b, reply));
        Py_DECREF(reply);
        Py_XDECREF(done);
    }
    failed = failed || add_to(counters, &r->conn_yields, 1) || hold(r, connection, services, size)
        || (!begin && size >= r->full_read && slow_down(r, connection, services));
    /* A peer that does not read its replies has blocked the connection. */
    int serving = failed ? 0 : is(connection, &r->state, r->serving);
    if (serving > 0) {
        PyObject *scheduler = PyObject_GetAttr(services, r->scheduler);
        failed = !scheduler || set_new(connection, &r->state, Py_NewRef(r->yielded));
        done = failed ? NULL : call_method(scheduler, r->call_together, (PyObject *)b);
        failed = !done;
        Py_XDECREF(done);
        Py_XDECREF(scheduler);
    }
    Py_XDECREF(counters);
    Py_XDECREF(services);
    return failed || serving < 0 ? -1 : 0;
}

/* Whether the next turn is a usual one: 1 if so, 0 if not, -1 on error. */
static int can_take_turn(Receiver *r, PyObject *connection) {
    int usual;
    if ((usual = is(connection, &r->writable, Py_True)) != 1 || (usual = is(connection, &r->unsent, Py_None)) != 1
        || (usual = is(connection, &r->stream, Py_None)) != 1 || (usual = is(connection, &r->run, Py_None)) < 0) return usual;
    if (usual) return 0;  /* commands are observed now */
    PyObject *transport = get(connection, &r->transport);
    PyObject *closing = transport ? PyObject_CallMethodNoArgs(transport, r->is_closing) : NULL;
    usual = closing ? PyObject_Not(closing) : -1;
    Py_XDECREF(closing);
    Py_XDECREF(transport);
    return usual;
}

/* Carries out more of the input that was kept. */
static PyObject *go_on(Receiver *r, Reception *b, PyObject *run, PyObject *data, Py_ssize_t begin) {
    PyObject *connection = b->connection, *out = list_for_replies(r, connection), *reply = NULL, *done = NULL;
    PyObject *from = out ? PyLong_FromSsize_t(begin) : NULL, *services = from ? get(connection, &r->services) : NULL;
    if (services) {
        PyObject *arguments[] = {data, out, from};
        reply = PyObject_Vectorcall(run, arguments, 3, NULL);
    }
    Py_ssize_t position = reply == Py_None ? next_turn(r, run) : 0;
    int left = !reply || position < 0 ? -1 : position ? end_turn(r, b, data, out, begin, position) : 1;
    if (!left) done = Py_NewRef(Py_None);
    else if (left > 0 && hold(r, connection, services, 0) == 0) {
        if (reply == Py_None) {
            PyObject *arguments[] = {connection, data, from};
            if (keep_list(r, connection, out) == 0) done = PyObject_VectorcallMethod(r->serve_rest, arguments, 3, NULL);
        } else if (note_activity(r, connection) == 0)
            done = PyBytes_CheckExact(reply) && !PyBytes_GET_SIZE(reply) ? Py_NewRef(Py_None) : send_reply(r, b, reply);
        if (done) Py_SETREF(done, PyObject_CallMethodNoArgs(connection, r->resume_reading));
    }
    return_list(r, out);
    Py_XDECREF(from);
    Py_XDECREF(services);
    Py_XDECREF(reply);
    return done;
}

/* The connection's next turn: `Connection._take_turn`. */
static PyObject *take_turn(Receiver *r, Reception *b) {
    PyObject *connection = b->connection;
    int yielded = is(connection, &r->state, r->yielded);
    if (yielded != 1) return yielded < 0 ? NULL : Py_NewRef(Py_None);  /* it now belongs to a stream, or is closed */
    Py_ssize_t begin = size_in(connection, &r->begin);
    int usual = begin > 0 ? can_take_turn(r, connection) : begin ? -1 : 0;
    if (usual < 1) return usual < 0 ? NULL : PyObject_CallMethodNoArgs(connection, r->take_turn);
    PyObject *run = get(connection, &r->run), *data = run ? get(connection, &r->pending_input) : NULL, *done = NULL;
    if (data && set_new(connection, &r->state, Py_NewRef(r->serving)) == 0
        && set_new(connection, &r->pending_input, PyBytes_FromStringAndSize(NULL, 0)) == 0
        && set_size(connection, &r->begin, 0) == 0) done = go_on(r, b, run, data, begin);
    Py_XDECREF(run);
    Py_XDECREF(data);
    return done;
}
