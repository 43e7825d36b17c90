/* Attributes of Python's objects, beyond what ../../../core/slots.h has. */

static inline int put(PyObject *owner, const Field *field, PyObject *value) {
    return set_new(owner, field, Py_NewRef(value)) ? ERROR : DONE;
}

/* Both steal the reference: `get` for a number, and `put` of a new object. */
static inline long long number_of(PyObject *value) {
    if (!value) return -1;
    long long number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return number;
}

static inline int put_new(PyObject *owner, const Field *field, PyObject *value) {
    return set_new(owner, field, value) ? ERROR : DONE;
}

static int add_to(PyObject *owner, const Field *field, long long more) {
    long long number = number_of(get(owner, field));
    if (number == -1 && PyErr_Occurred()) return ERROR;
    return put_new(owner, field, PyLong_FromLongLong(number + more));
}
