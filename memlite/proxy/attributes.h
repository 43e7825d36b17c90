/* Numbers and references in attributes; see slots.h. */

static inline int put(PyObject *owner, const Field *field, PyObject *value) {
    return set_new(owner, field, Py_NewRef(value));
}

/* Returns the value of an int; -1 with an error if it is not an int. Python's own function takes 200 instructions for ints of more
 * than 30 bits, such as times. */
static inline long long as_number(PyObject *value) {
#if PY_VERSION_HEX < 0x030C0000
    if (PyLong_CheckExact(value) && Py_SIZE(value) >= 0 && Py_SIZE(value) <= 2) {
        const digit *digits = ((PyLongObject *)value)->ob_digit;
        return Py_SIZE(value) == 2 ? (long long)digits[0] | (long long)digits[1] << PyLong_SHIFT : Py_SIZE(value) ? digits[0] : 0;
    }
#endif
    return PyLong_AsLongLong(value);
}

/* Returns the value of an int attribute; -1 with an error if it is not an int. */
static long long get_number(PyObject *owner, const Field *field) {
    PyObject *value = field->at < 0 ? NULL : *(PyObject **)((char *)owner + field->at);
    if (value) return as_number(value);
    if (!(value = PyObject_GetAttr(owner, field->name))) return -1;
    long long found = as_number(value);
    Py_DECREF(value);
    return found;
}

static int put_number(PyObject *owner, const Field *field, long long value) {
    return set_new(owner, field, PyLong_FromLongLong(value));
}

static double get_float(PyObject *owner, const Field *field) {
    PyObject *value = field->at < 0 ? NULL : *(PyObject **)((char *)owner + field->at);
    if (value && PyFloat_CheckExact(value)) return PyFloat_AS_DOUBLE(value);
    value = get(owner, field);
    double found = value ? PyFloat_AsDouble(value) : -1;
    Py_XDECREF(value);
    return found;
}

/* Returns whether an attribute is the object `other`: 0 or 1; -1 with an error. */
static int is_same(PyObject *owner, const Field *field, PyObject *other) {
    PyObject *value = get(owner, field);
    Py_XDECREF(value);  /* the owner has it, or it is only compared */
    return value ? value == other : -1;
}
