/* Delivery of a node's replies to the requests that wait for them: `Node.usual_received` in node.py. */

static PyObject *s_bytes_written, *s_note_time, *s_missing, *s_take_some, *s_unexpected, *s_wrote;

static Field any_answered;  /* the attribute `_answered` of nodes of other types, in tests */

static PyTypeObject *counters_type;
static Field bytes_written;  /* the attribute of the counters */

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

/* Gives a lone request its reply, [from, to) of `data`. It is written at once if nothing else is to be done; otherwise `quiet`
 * is cleared. */
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

/* Does the same for a traced request. */
static int give_traced(Traced *traced, PyObject *data, Py_ssize_t from, Py_ssize_t to, Written *written, int *quiet) {
    Lone *lone = traced->lone;
    if (!lone) return -1;  /* cannot happen: it would not wait */
    traced->lone = NULL;
    int failed = traced_receive(traced, PyBytes_AS_STRING(data) + from, to - from) || give(lone, data, from, to, written, quiet)
        || traced_replied(traced);
    Py_DECREF((PyObject *)lone);
    return failed ? -1 : 0;
}

/* Returns how many replies a part of a batch in Python awaits; -1 with an error. */
static Py_ssize_t missing_of(PyObject *part) {
    PyObject *missing = PyObject_GetAttr(part, s_missing);
    Py_ssize_t found = missing ? PyLong_AsSsize_t(missing) : -1;
    Py_XDECREF(missing);
    return found;
}

/* Makes a node give up its connection because of the reply in [from, to) of `data`, unless another call has done so; `answered`
 * counts the requests before it. */
static int unexpected(PyObject *node, PyObject *data, Py_ssize_t from, Py_ssize_t to, PyObject *pending, long long answered) {
    int usual = Py_IS_TYPE(node, known.node), same = usual ? is_same(node, &known.pending, pending) : 1;
    if (same < 1) return same;
    if (put_number(node, usual ? &known.answered : &any_answered, answered)) return -1;
    PyObject *reply = piece(data, from, to), *result = reply ? PyObject_CallMethodOneArg(node, s_unexpected, reply) : NULL;
    Py_XDECREF(reply);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Gives requests their replies; returns how many bytes were taken, or -2 with an error. From the first reply that does not match
 * its request, no replies are given, and the connection is given up. Clears `quiet` if more may have to be done. */
static Py_ssize_t hand_out_all(PyObject *node, PyObject *data, PyObject *pending, long long answered, long long last,
                               long long timed, PyObject *batch_part, int *quiet) {
    PyObject *result;
    const char *start = PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data), *at = start;
    Py_ssize_t few[FEW], *ends = few, found = 0, room = FEW;
    int odd = 0;
    while (at < end) {
        const char *after = usual_end(at, end, &odd);
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
    int usual = Py_IS_TYPE(node, known.node), fit = 1;
    Asked *asked = usual ? (Asked *)get(node, &known.asked) : NULL;
    Py_ssize_t unasked = found && answered + found > last ? found - (Py_ssize_t)(last - answered) : 0, i = 0;
    found -= unasked;
    if (usual && (!asked || !Py_IS_TYPE(asked, &Asked_type))) {
        if (asked) PyErr_SetString(PyExc_TypeError, "the requests asked must be kept in C");
        taken = -2;
    }
    if (found > 0 && taken > 0) {
        int failed = 0;
        if (timed && answered + found >= timed) {
            failed = usual ? note_time(node) : call(node, s_note_time);
        }
        if (failed || put_number(node, usual ? &known.answered : &any_answered, answered + found)) taken = -2;
    }
    while (taken > 0 && fit > 0 && i < found) {
        int failed = 0;
        Py_ssize_t number = 1, most = 1, missing = 1;  /* replies: handed to the receiver, available, awaited by it */
        PyObject *receiver = usual ? PyObject_Vectorcall(known.popleft, &pending, 1, NULL)
            : PyObject_CallMethodNoArgs(pending, s_popleft);
        if (!receiver) {  /* cannot happen: there are as many receivers as requests */
            taken = -2;
            break;
        }
        int lone = Py_IS_TYPE(receiver, &Lone_type), traced = Py_IS_TYPE(receiver, &Traced_type);
        int batch = (PyObject *)Py_TYPE(receiver) == batch_part;
        Part *part = Py_IS_TYPE(receiver, &Part_type) ? (Part *)receiver : NULL;
        if (!lone && !traced) *quiet = 0;
        if (part || batch) {
            missing = part ? part->missing : missing_of(receiver);
            number = most = missing < found - i ? missing : found - i;
            if (batch && most > FEW) number = most = FEW;
        }
        if (most < 1) failed = 1;  /* cannot happen: it would not wait */
        else if (part && part->request && part_items(part, data, given, ends[i])) {
            if (asked) asked_skip(asked);
        } else if (asked) {
            const char *from = start + given;
            for (number = 0; number < most; number++, from = start + ends[i + number - 1])
                if ((fit = asked_take(asked, from, start + ends[i + number], !odd, missing - number > 1)) < 1) break;
        }
        if (failed || number < 1) ;
        else if (lone) failed = give((Lone *)receiver, data, given, ends[i], &written, quiet);
        else if (traced) failed = give_traced((Traced *)receiver, data, given, ends[i], &written, quiet);
        else if (part) failed = part_receive(part, data, given, ends + i, number);
        else if (batch) {
            PyObject *some = PyList_New(number);
            for (Py_ssize_t j = 0; some && j < number; j++) {
                PyObject *one = piece(data, j ? ends[i + j - 1] : given, ends[i + j]);
                if (!one) Py_CLEAR(some);
                else PyList_SET_ITEM(some, j, one);
            }
            PyObject *of_part[] = {node, receiver, some};
            result = some ? PyObject_VectorcallMethod(s_take_some, of_part, 3, NULL) : NULL;
            failed = !result;
            Py_XDECREF(some);
            Py_XDECREF(result);
        } else {
            PyObject *reply = piece(data, given, ends[i]);
            result = reply ? PyObject_CallMethodOneArg(receiver, s_answer, reply) : NULL;
            failed = !result;
            Py_XDECREF(reply);
            Py_XDECREF(result);
        }
        if (!failed && (part ? part->missing > 0 : number < 1)) {
            failed = !(result = PyObject_CallMethodOneArg(pending, s_appendleft, receiver)) || (number > 0 && batch_progressed(part->batch));
            Py_XDECREF(result);
        }
        Py_DECREF(receiver);
        i += number < 1 && fit > 0 ? 1 : number;
        if (i) given = ends[i - 1];
        if (failed && !error[0] && PyErr_Occurred()) PyErr_Fetch(&error[0], &error[1], &error[2]);
        else if (failed) PyErr_Clear();  /* the other requests get their replies, and the first error is raised */
    }
    Py_XDECREF((PyObject *)asked);
    if (fit < 0) taken = -2;
    if (taken > 0 && (!fit || unasked) && unexpected(node, data, given, ends[i], pending, answered + i)) taken = -2;
    if (taken > 0 && (!fit || unasked)) {
        taken = PyBytes_GET_SIZE(data);  /* the rest is discarded with the connection */
        *quiet = 0;
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
        return PyErr_Format(PyExc_TypeError, "expected a node, bytes, a queue, three numbers and a type");
    long long answered = PyLong_AsLongLong(args[3]), last = PyLong_AsLongLong(args[4]), timed = PyLong_AsLongLong(args[5]);
    if (PyErr_Occurred()) return NULL;
    int quiet = 1;
    Py_ssize_t taken = hand_out_all(args[0], args[1], args[2], answered, last, timed, args[6], &quiet);
    return taken == -2 ? NULL : PyLong_FromSsize_t(taken);
}
