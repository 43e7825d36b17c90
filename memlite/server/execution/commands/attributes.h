/* Attributes of Python's objects, beyond what ../../../core/slots.h has. */

static inline int put(PyObject *owner, const Field *field, PyObject *value) {
    return set_new(owner, field, Py_NewRef(value)) ? ERROR : DONE;
}

/* A number; -1 may stand for an error. The usual ones need no call. */
static inline long long read_long(PyObject *value) {
#if PY_VERSION_HEX >= 0x030C0000
    if (PyLong_CheckExact(value) && PyUnstable_Long_IsCompact((PyLongObject *)value))
        return PyUnstable_Long_CompactValue((PyLongObject *)value);
#else
    if (PyLong_CheckExact(value)) {
        const digit *digits = ((PyLongObject *)value)->ob_digit;
        if (Py_SIZE(value) == 1) return digits[0];
        if (Py_SIZE(value) == 2) return (long long)digits[1] << PyLong_SHIFT | digits[0];
        if (!Py_SIZE(value)) return 0;
    }
#endif
    return PyLong_AsLongLong(value);
}

/* Both steal the reference: `get` for a number, and `put` of a new object. */
static inline long long number_of(PyObject *value) {
    if (!value) return -1;
    long long number = read_long(value);
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
