/* Numbers and references in attributes; see slots.h. */

static inline int put(PyObject *owner, const Field *field, PyObject *value) {
    return set_new(owner, field, Py_NewRef(value));
}

/* An int; -1 with an error if it is none. */
static long long get_number(PyObject *owner, const Field *field) {
    PyObject *value = get(owner, field);
    long long found = value ? PyLong_AsLongLong(value) : -1;
    Py_XDECREF(value);
    return found;
}

static int put_number(PyObject *owner, const Field *field, long long value) {
    return set_new(owner, field, PyLong_FromLongLong(value));
}

static double get_float(PyObject *owner, const Field *field) {
    PyObject *value = get(owner, field);
    double found = value ? PyFloat_AsDouble(value) : -1;
    Py_XDECREF(value);
    return found;
}

/* Whether an attribute is that object: 0 or 1, or -1. */
static int is_same(PyObject *owner, const Field *field, PyObject *other) {
    PyObject *value = get(owner, field);
    Py_XDECREF(value);  /* the owner has it, or it is only compared */
    return value ? value == other : -1;
}
