/* Times of requests: timing.py. */

static PyObject *s_record;

/* Adds a duration to a histogram: `LatencyHistogram.record`. */
static int record(PyObject *histogram, long long took) {
    enum { SUB_BITS = 5 };
    PyObject *result, *number;
    if (!Py_IS_TYPE(histogram, known.histogram) || known.buckets.at < 0 || took < 0) {
        result = (number = PyLong_FromLongLong(took)) ? PyObject_CallMethodOneArg(histogram, s_record, number) : NULL;
        Py_XDECREF(number);
        Py_XDECREF(result);
        return result ? 0 : -1;
    }
    int shift = took ? 64 - __builtin_clzll((unsigned long long)took) - SUB_BITS - 1 : 0;
    Py_ssize_t at = shift <= 0 ? (Py_ssize_t)took : ((Py_ssize_t)shift << SUB_BITS) + (Py_ssize_t)(took >> shift);
    PyObject *buckets = get(histogram, &known.buckets);
    int failed = !buckets || !PyList_CheckExact(buckets) || at >= PyList_GET_SIZE(buckets);
    long long before = failed ? -1 : PyLong_AsLongLong(PyList_GET_ITEM(buckets, at));
    failed = before < 0 || !(number = PyLong_FromLongLong(before + 1)) || PyList_SetItem(buckets, at, number);
    Py_XDECREF(buckets);
    if (failed) return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_ValueError, "not a supported histogram"), -1);
    long long count = get_number(histogram, &known.count), total = get_number(histogram, &known.total);
    long long maximum = get_number(histogram, &known.maximum);
    if (PyErr_Occurred() || put_number(histogram, &known.count, count + 1) || put_number(histogram, &known.total, total + took))
        return -1;
    return took > maximum ? put_number(histogram, &known.maximum, took) : 0;
}

/* Adds a duration to a histogram of a `Timing`: that of the node `owner`, or `owner` itself. */
static int record_in(PyObject *owner, const Field *field, long long took) {
    PyObject *timing = Py_IS_TYPE(owner, known.node) ? get(owner, &known.timing) : Py_NewRef(owner);
    PyObject *histogram = timing ? get(timing, field) : NULL;
    int failed = histogram ? record(histogram, took) : -1;
    Py_XDECREF(timing);
    Py_XDECREF(histogram);
    return failed;
}

/* Records the time from a timed write to its reply: `Node._note_time`. */
static int note_time(PyObject *node) {
    PyObject *service;
    long long now = nanoseconds(), since = now < 0 ? -1 : get_number(node, &known.timed);
    if (PyErr_Occurred() || !(service = get(node, &known.service))) return -1;
    int failed = record(service, now - since) || record_in(node, &known.all_service, now - since);
    Py_DECREF(service);
    return failed ? -1 : put_number(node, &known.timed, 0);
}

/* Notes that a queue is written: `Timing.written`. */
static int note_written(PyObject *node, long long since, long long length) {
    long long now = nanoseconds(), before, longest;
    PyObject *timing = now < 0 ? NULL : get(node, &known.timing);
    int failed = !timing || record_in(timing, &known.queueing, now - since) || put_number(node, &known.put_at, 0)
        || ((before = get_number(timing, &known.lengths)) < 0 && PyErr_Occurred()) || put_number(timing, &known.lengths, before + length)
        || ((longest = get_number(timing, &known.longest)) < 0 && PyErr_Occurred())
        || (length > longest && put_number(timing, &known.longest, length));
    Py_XDECREF(timing);
    return failed ? -1 : 0;
}

/* Starts timing the wait of a request that is put into the empty queue of a node, if one is to be timed: `Node._time_wait`. */
static int time_wait(PyObject *node) {
    PyObject *timing = get(node, &known.timing);
    int is = timing ? is_same(timing, &known.waits, Py_True) : -1;
    long long now = is > 0 ? nanoseconds() : 0;
    int failed = is < 0 || now < 0 || (is && (put(timing, &known.waits, Py_False) || put_number(node, &known.put_at, now)));
    Py_XDECREF(timing);
    return failed ? -1 : 0;
}
