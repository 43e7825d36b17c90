/* The time, and when items expire. */

/* A clock may be injected, but it changes nothing: what is borrowed stays valid. */
static int now(Runner *r) {
    if (r->timed) return DONE;
    PyObject *time = PyObject_CallMethod(r->clock, "now", NULL);
    if (!time) return ERROR;
    r->now = PyFloat_AsDouble(time);
    Py_DECREF(time);
    r->timed = 1;
    return r->now == -1.0 && PyErr_Occurred() ? ERROR : DONE;
}

/* When an item with this exptime, which is not negative, expires; 0 for never. */
static int expiry(Runner *r, long long exptime, double *expires) {
    *expires = (double)exptime;
    if (!exptime || exptime > MONTH) return DONE;
    if (now(r) < 0) return ERROR;
    *expires += r->now;
    return DONE;
}
