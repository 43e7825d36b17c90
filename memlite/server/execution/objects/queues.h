/* The queues of S3-FIFO: the counterpart of memory/eviction/key_queue.py. */

static int push(Runner *r, const Field *queue, PyObject *line) {
    PyObject *fifo = get(r->policy, queue), *append = fifo ? get(fifo, &r->push) : NULL;
    PyObject *none = append ? PyObject_CallOneArg(append, line) : NULL;
    Py_XDECREF(none);
    Py_XDECREF(append);
    Py_XDECREF(fifo);
    return none ? DONE : ERROR;
}

static Py_ssize_t left_by(PyObject *line) {
    return 2 * allocated(PyBytes_GET_SIZE(line)) + PLACE;
}

/* Forgets the place of a removed item, once it has been taken from its queue. */
static int give_up(Runner *r, PyObject *line) {
    PyObject *left = get(r->policy, &r->left);
    int done = left && !PyObject_DelItem(left, line) ? change(r, N__left_bytes, -left_by(line)) : ERROR;
    Py_XDECREF(left);
    return done;
}

/* Finds the oldest line of a queue, and the part of the queue that it is in. ABSENT if there is none; see `Fifo.pop`. */
static int oldest(Runner *r, const Field *queue, PyObject **part, PyObject **line) {
    PyObject *fifo = get(r->policy, queue);
    const Field *parts[] = {&r->oldest, &r->older, &r->newest};
    int done = fifo ? ABSENT : ERROR;
    for (int i = 0; i < 3 && done == ABSENT; i++) {
        *part = get(fifo, parts[i]);
        Py_ssize_t size = *part ? PyObject_Size(*part) : -1;
        if (size < 0) done = ERROR;
        else if (size) done = (*line = PySequence_GetItem(*part, 0)) ? DONE : ERROR;
        if (done != DONE) Py_XDECREF(*part);
    }
    Py_XDECREF(fifo);
    if (done == DONE && !PyBytes_CheckExact(*line)) {
        PyErr_SetString(PyExc_TypeError, "unexpected key in the queues");
        Py_DECREF(*line);
        Py_DECREF(*part);
        done = ERROR;
    }
    return done;
}

/* Removes the first line from a part of a queue. This needs no memory: anything that may fail comes before. */
static int take(Runner *r, PyObject *part) {
    PyObject *line = PyObject_CallOneArg(r->popleft, part);
    Py_XDECREF(line);
    return line ? DONE : ERROR;
}

/* Finds the oldest line of a queue, and its item. If the item has been removed, sets `item` to
NULL, gives up its place, and takes the line from the queue. ABSENT if there is no line. */
static int oldest_item(Runner *r, const Field *queue, PyObject **part, PyObject **line, PyObject **item) {
    int done = oldest(r, queue, part, line);
    if (done != DONE) return done;
    *item = PyDict_GetItemWithError(dict_of(r, *line), *line);
    if (!*item && (PyErr_Occurred() || give_up(r, *line) < 0 || take(r, *part) < 0)) done = ERROR;
    else if (*item && !PyObject_TypeCheck(*item, (PyTypeObject *)r->item_type)) {
        PyErr_SetString(PyExc_TypeError, "unexpected item in the table");
        done = ERROR;
    }
    if (done < 0) {
        Py_DECREF(*line);
        Py_DECREF(*part);
    }
    return done;
}
