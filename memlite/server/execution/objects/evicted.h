/* Evicted items: counting them, and showing them to watchers. */

/* The bytes that memcached would count for an item; see `SizeClasses.of_item`. */
static int total_of(Runner *r, const Gone *one, long long *total) {
    PyObject *wire = get(one->item, &r->wire);
    if (!wire) return ERROR;
    const char *at = PyBytes_AS_STRING(wire), *space = at + PyBytes_GET_SIZE(one->line), *line_end = NULL;
    Py_ssize_t size = PyBytes_GET_SIZE(wire);  /* line: its key and 6 bytes; a reply has 6 bytes before its key */
    if (size > 6) line_end = memchr(at, '\n', size);
    if (line_end) {
        if (one->state & FULL || space + 3 > at + size || memcmp(space, " 0 ", 3)) space = memchr(at + 6, ' ', line_end - at - 6);
        if (!space) line_end = NULL;
        else *total = (memcmp(space, " 0 ", 3) ? r->overhead_flags : r->overhead) + PyBytes_GET_SIZE(one->line) - 6
                      + (at + size - line_end) - 1 - AFTER_VALUE;
    }
    Py_DECREF(wire);
    if (!line_end) PyErr_SetString(PyExc_ValueError, "unexpected form of an item");
    return line_end ? DONE : ERROR;
}

/* Evicted items of one size class that have yet to be added to its counts. */
typedef struct { Py_ssize_t class; long long evicted, unfetched, time; } Tally;

static int add_tally(Runner *r, PyObject *evictions, Tally *t) {
    if (!t->evicted) return DONE;
    PyObject *counts = Py_XNewRef(t->class < PyList_GET_SIZE(evictions) ? PyList_GET_ITEM(evictions, t->class) : NULL);
    if (!counts) return PyErr_SetString(PyExc_IndexError, "no counts for this class"), ERROR;
    int done = add_to(counts, &r->evicted, t->evicted);
    if (done == DONE && t->unfetched) done = add_to(counts, &r->evicted_unfetched, t->unfetched);
    if (done == DONE) done = put_new(counts, &r->evicted_time, PyLong_FromLongLong(t->time));
    Py_DECREF(counts);
    *t = (Tally){0};
    return done;
}

/* Counts an evicted item that has no expiry; see `Engine.count_evictions`. */
static int count_eviction(Runner *r, const Gone *one, PyObject *evictions, Tally *t, long long second) {
    long long total;
    if (total_of(r, one, &total) < 0) return ERROR;
    int below = 0, above = r->classes - 1;
    while (below < above) {
        int middle = (below + above) / 2;
        if (r->chunk_sizes[middle] < total) below = middle + 1;
        else above = middle;
    }
    if (t->class != below + 1 && add_tally(r, evictions, t) < 0) return ERROR;
    t->class = below + 1;
    t->evicted++;
    t->unfetched += !(one->state & FETCHED);
    t->time = second - (one->state >> STATE_BITS);
    COUNT(r, evictions);
    if (!(one->state & FETCHED)) COUNT(r, evicted_unfetched);
    return DONE;
}

/* Passes evicted items, as `Policy.evict` returns them, to the table's callback, which counts them and shows them to
watchers. */
static int tell_of(Runner *r, PyObject *on_evict, const Gone *gone, Py_ssize_t count) {
    PyObject *list = settle(r) < 0 ? NULL : PyList_New(count), *none = NULL;
    int done = list ? DONE : ERROR;
    for (Py_ssize_t i = 0; done == DONE && i < count; i++) {
        PyObject *one = Py_BuildValue("OOn", gone[i].line, gone[i].item, gone[i].size);
        if (one) PyList_SET_ITEM(list, i, one);
        else done = ERROR;
    }
    if (done == DONE && !(none = PyObject_CallOneArg(on_evict, list))) done = ERROR;
    Py_XDECREF(none);
    Py_XDECREF(list);
    return done;
}

/* Counts evicted items. Those with an expiry, or all of them while they are watched, go to the counterpart. */
static int tell(Runner *r) {
    PyObject *on_evict = get(r->table, &r->on_evict), *observer = get(r->engine, &r->observer);
    PyObject *evictions = get(r->sizes, &r->evictions);
    int usual = on_evict && observer && evictions ? PyObject_RichCompareBool(on_evict, r->count_evictions, Py_EQ) : ERROR;
    long long second = number_of(get(r->clock, &r->second)) - r->epoch;
    int done = usual < 0 || PyErr_Occurred() ? ERROR : DONE;
    if (done == DONE && (!usual || observer != Py_None || !PyList_Check(evictions)))
        done = tell_of(r, on_evict, r->gone, r->gone_count);
    else {
        Tally tally = {0};
        for (Py_ssize_t i = 0; done == DONE && i < r->gone_count; i++) {
            const Gone *one = r->gone + i;
            PyObject *expires = one->state & FULL ? get(one->item, &r->expires) : NULL;
            int mortal = expires ? PyObject_IsTrue(expires) : one->state & FULL ? ERROR : 0;
            Py_XDECREF(expires);
            if (!mortal) done = count_eviction(r, one, evictions, &tally, second);
            else done = mortal < 0 || add_tally(r, evictions, &tally) < 0 ? ERROR : tell_of(r, on_evict, one, 1);
        }
        if (done == DONE) done = add_tally(r, evictions, &tally);
    }
    Py_XDECREF(on_evict);
    Py_XDECREF(observer);
    Py_XDECREF(evictions);
    return done;
}
