/* Replies of a node, given to those who wait for them: `Node.usual_received` in node.py. */

static PyObject *s_bytes_written, *s_note_time, *s_take_some, *s_wrote;

static Field any_answered;  /* of nodes that are not known, in tests */

static PyTypeObject *counters_type;
static Field bytes_written;  /* of those */

typedef struct { PyObject *counters; Py_ssize_t bytes; } Written;

static int add_written(Written *written) {
    if (!written->bytes) return 0;
    PyObject *counters = written->counters;
    Field field = {s_bytes_written, Py_IS_TYPE(counters, counters_type) ? bytes_written.at : -1};
    long long before = get_number(counters, &field);
    int failed = (before < 0 && PyErr_Occurred()) || put_number(counters, &field, before + written->bytes) ? -1 : 0;
    written->bytes = 0;
    return failed;
}

/* Gives the request that came alone its reply, [from, to) of `data`: written at once, if nothing is to be done but that,
 * in which case `quiet` stays as it is. */
static int give(Lone *lone, PyObject *data, Py_ssize_t from, Py_ssize_t to, Written *written, int *quiet) {
    PyObject *write = lone->write, *result;
    if (!lone->alone || !write || write == Py_None || !lone->counters) {
        *quiet = 0;
        PyObject *reply = piece(data, from, to);
        result = reply ? lone_answer(lone, reply) : NULL;
        Py_XDECREF(reply);
        Py_XDECREF(result);
        return result ? 0 : -1;
    }
    lone->alone = 0;
    if (written->counters != lone->counters) {
        if (add_written(written)) return -1;
        Py_XSETREF(written->counters, Py_NewRef(lone->counters));
    }
    written->bytes += to - from;
    Py_INCREF(write);
    int failed = write_with(write, data, from, to) || begin_thinking(lone);
    Py_DECREF(write);
    if (failed) return -1;
    if (lone->write != write && lone->executor && lone->executor != Py_None) {  /* the client does not read */
        *quiet = 0;
        PyObject *executor = Py_NewRef(lone->executor);
        result = PyObject_CallMethodNoArgs(executor, s_wrote);
        Py_DECREF(executor);
        if (!result) return -1;
        Py_DECREF(result);
    }
    return 0;
}

/* Likewise, to one that is traced. */
static int give_traced(Traced *traced, PyObject *data, Py_ssize_t from, Py_ssize_t to, Written *written, int *quiet) {
    Lone *lone = traced->lone;
    if (!lone) return -1;  /* cannot be: it would not wait */
    traced->lone = NULL;
    int failed = traced_receive(traced, PyBytes_AS_STRING(data) + from, to - from) || give(lone, data, from, to, written, quiet)
        || traced_replied(traced);
    Py_DECREF((PyObject *)lone);
    return failed ? -1 : 0;
}

/* Gives requests their replies; returns how many bytes were taken, -1 if there are too many replies, or -2 with an error.
 * `quiet` is cleared if more may have to be done than what was. */
static Py_ssize_t hand_out_all(PyObject *node, PyObject *data, PyObject *pending, long long answered, long long last,
                               long long timed, PyObject *batch_part, int *quiet) {
    PyObject *result;
    const char *start = PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data), *at = start;
    Py_ssize_t few[FEW], *ends = few, found = 0, room = FEW;
    while (at < end) {
        const char *after = usual_end(at, end);
        if (!after) break;
        if (found == room) {
            Py_ssize_t *more = PyMem_New(Py_ssize_t, room * 4);
            if (!more) {
                if (ends != few) PyMem_Free(ends);
                PyErr_NoMemory();
                return -2;
            }
            memcpy(more, ends, room * sizeof *ends);
            if (ends != few) PyMem_Free(ends);
            ends = more;
            room *= 4;
        }
        at = after;
        ends[found++] = at - start;
    }
    Py_ssize_t taken = at - start, given = 0;
    PyObject *error[3] = {NULL, NULL, NULL};
    Written written = {NULL, 0};
    int usual = Py_IS_TYPE(node, known.node);
    if (found && answered + found > last) {
        taken = -1;
        found = 0;
    }
    if (found) {
        int failed = 0;
        if (timed && answered + found >= timed) {
            failed = usual ? note_time(node) : call(node, s_note_time);
        }
        if (failed || put_number(node, usual ? &known.answered : &any_answered, answered + found)) taken = -2;
    }
    for (Py_ssize_t i = 0; taken > 0 && i < found; i++) {
        int failed = 0;
        PyObject *receiver = usual ? PyObject_Vectorcall(known.popleft, &pending, 1, NULL)
            : PyObject_CallMethodNoArgs(pending, s_popleft);
        if (!receiver) {  /* cannot be: there are as many as requests */
            taken = -2;
            break;
        }
        int lone = Py_IS_TYPE(receiver, &Lone_type), traced = Py_IS_TYPE(receiver, &Traced_type);
        if (!lone && !traced) *quiet = 0;
        if (lone) failed = give((Lone *)receiver, data, given, ends[i], &written, quiet);
        else if (traced) failed = give_traced((Traced *)receiver, data, given, ends[i], &written, quiet);
        else if (Py_IS_TYPE(receiver, &Part_type)) {
            Part *part = (Part *)receiver;
            Py_ssize_t number = part->missing < found - i ? part->missing : found - i;
            if (!number) failed = 1;  /* cannot be: it would not wait */
            else {
                failed = part_receive(part, data, given, ends + i, number);
                i += number - 1;
            }
            if (!failed && part->missing) {
                failed = !(result = PyObject_CallMethodOneArg(pending, s_appendleft, receiver)) || part_progressed(part);
                Py_XDECREF(result);
            }
        } else if ((PyObject *)Py_TYPE(receiver) == batch_part) {
            PyObject *rest = PyList_New(0);
            for (Py_ssize_t j = i; rest && j < found && j - i < FEW; j++) {
                PyObject *one = piece(data, j ? ends[j - 1] : 0, ends[j]);
                if (!one || PyList_Append(rest, one)) Py_CLEAR(rest);
                Py_XDECREF(one);
            }
            PyObject *of_part[] = {node, receiver, rest};
            result = rest ? PyObject_VectorcallMethod(s_take_some, of_part, 3, NULL) : NULL;
            Py_ssize_t number = result ? PyLong_AsSsize_t(result) : -1;
            Py_XDECREF(rest);
            Py_XDECREF(result);
            if (number < 1) failed = 1;
            else i += number - 1;
        } else {
            PyObject *reply = piece(data, given, ends[i]);
            if (!reply) failed = 1;
            else {
                failed = !(result = PyObject_CallMethodOneArg(receiver, s_answer, reply));
                Py_XDECREF(result);
            }
            Py_XDECREF(reply);
        }
        Py_DECREF(receiver);
        given = ends[i];
        if (failed && !error[0] && PyErr_Occurred()) PyErr_Fetch(&error[0], &error[1], &error[2]);
        else if (failed) PyErr_Clear();  /* the others get theirs, and the first error is raised */
    }
    if (ends != few) PyMem_Free(ends);
    if (add_written(&written)) taken = -2;
    Py_XDECREF(written.counters);
    if (error[0]) {
        PyErr_Clear();
        PyErr_Restore(error[0], error[1], error[2]);
        return -2;
    }
    return taken;
}

static PyObject *hand_out(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 7 || !PyBytes_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "a node, bytes, a queue, three numbers and a type are needed");
    long long answered = PyLong_AsLongLong(args[3]), last = PyLong_AsLongLong(args[4]), timed = PyLong_AsLongLong(args[5]);
    if (PyErr_Occurred()) return NULL;
    int quiet = 1;
    Py_ssize_t taken = hand_out_all(args[0], args[1], args[2], answered, last, timed, args[6], &quiet);
    return taken == -2 ? NULL : PyLong_FromSsize_t(taken);
}
