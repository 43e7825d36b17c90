/* The time, and when items expire. */

/* Looks up the attributes of a clock whose class is `Clock`: the time is then the sum of two of them. */
static int know_clock(Runner *r) {
    PyObject *module = PyImport_ImportModule("memlite.core.clock"), *type = module ? PyObject_GetAttrString(module, "Clock") : NULL;
    Py_XDECREF(module);
    if (!type) return ERROR;
    r->usual_clock = (PyObject *)Py_TYPE(r->clock) == type;
    int failed = find_field(&r->monotonic, type, "_monotonic") || find_field(&r->offset, type, "_offset");
    Py_DECREF(type);
    return failed ? ERROR : DONE;
}

/* The clock may be an injected one, but calling it has no side effects: borrowed references stay
valid. */
static int now(Runner *r) {
    if (r->timed) return DONE;
    PyObject *time, *offset = NULL;
    if (r->usual_clock) {
        PyObject *monotonic = get(r->clock, &r->monotonic);
        time = monotonic ? PyObject_CallNoArgs(monotonic) : NULL;
        Py_XDECREF(monotonic);
        if (time && !(offset = get(r->clock, &r->offset))) Py_CLEAR(time);
    } else time = PyObject_CallMethod(r->clock, "now", NULL);
    if (!time) return ERROR;
    r->now = PyFloat_AsDouble(time);
    Py_DECREF(time);
    if (offset && !PyErr_Occurred()) r->now += PyFloat_AsDouble(offset);
    Py_XDECREF(offset);
    if (PyErr_Occurred()) return ERROR;
    r->timed = 1;
    return DONE;
}

/* When an item with this exptime, which is not negative, expires; 0 for never. */
static int expiry(Runner *r, long long exptime, double *expires) {
    *expires = (double)exptime;
    if (!exptime || exptime > MONTH) return DONE;
    if (now(r) < 0) return ERROR;
    *expires += r->now;
    return DONE;
}
