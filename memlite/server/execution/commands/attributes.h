/* Access to attributes of Python objects, in addition to ../../../core/slots.h. */

static inline int put(PyObject *owner, const Field *field, PyObject *value) {
    return set_new(owner, field, Py_NewRef(value)) ? ERROR : DONE;
}

/* The value of an int; -1 may mean an error. Small ints need no call. */
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

/* These two steal the reference: `number_of` reads an int that `get` returned, and `put_new` sets
an attribute to a new object. */
static inline long long number_of(PyObject *value) {
    if (!value) return -1;
    long long number = read_long(value);
    Py_DECREF(value);
    return number;
}

static inline int put_new(PyObject *owner, const Field *field, PyObject *value) {
    return set_new(owner, field, value) ? ERROR : DONE;
}

/* Whether an attribute has the only reference to its value, so that the value may be changed in place unnoticed. */
static inline int is_alone(PyObject *value) {
#ifdef Py_GIL_DISABLED
    (void)value;
    return 0;
#else
    return Py_REFCNT(value) == 1;
#endif
}

/* Changes an int in place; returns 1 if done. Returns 0 if the int is shared, the new number takes
another number of digits, or it is one of the small numbers for which Python shares objects. */
static inline int renumbered(PyObject *value, long long number) {
    enum { MOST_SHARED = 256 };
    if (!is_alone(value) || !PyLong_CheckExact(value) || number <= MOST_SHARED || number >> PyLong_SHIFT > (long long)PyLong_MASK) return 0;
    int digits = number > (long long)PyLong_MASK ? 2 : 1;
#if PY_VERSION_HEX >= 0x030F0000
    (void)digits;
    return 0;
#elif PY_VERSION_HEX >= 0x030C0000
    if (((PyLongObject *)value)->long_value.lv_tag != (uintptr_t)digits << 3) return 0;  /* or it is negative */
    digit *to = ((PyLongObject *)value)->long_value.ob_digit;
#else
    if (Py_SIZE(value) != digits) return 0;
    digit *to = ((PyLongObject *)value)->ob_digit;
#endif
#if PY_VERSION_HEX < 0x030F0000
    to[0] = (digit)(number & PyLong_MASK);
    if (digits == 2) to[1] = (digit)(number >> PyLong_SHIFT);
    return 1;
#endif
}

/* Sets an attribute to a number. */
static inline int put_number(PyObject *owner, const Field *field, long long number) {
    PyObject *value = field->at < 0 ? NULL : *(PyObject **)((char *)owner + field->at);
    if (value && renumbered(value, number)) return DONE;
    return put_new(owner, field, PyLong_FromLongLong(number));
}

static int add_to(PyObject *owner, const Field *field, long long more) {
    long long number = number_of(get(owner, field));
    if (number == -1 && PyErr_Occurred()) return ERROR;
    return put_number(owner, field, number + more);
}
