/* Attributes of Python objects for C modules. Slots are read and written at their offsets, which are looked up once. The
offsets in compiled classes, and in classes without slots, are not known: their attributes are accessed by name.

Include Python.h, stddef.h and structmember.h first. */

typedef struct { PyObject *name; Py_ssize_t at; } Field;  /* an attribute, and the offset of its slot; -1 for none */

/* Returns 0, or -1 with an error. A field that is looked up again keeps its name. */
static int find_field(Field *field, PyObject *type, const char *name) {
    field->at = -1;
    if (!field->name && !(field->name = PyUnicode_InternFromString(name))) return -1;
    PyObject *slot = PyObject_GetAttr(type, field->name);
    if (!slot) PyErr_Clear();  /* an attribute of instances only */
    else if (Py_TYPE(slot) == &PyMemberDescr_Type && ((PyMemberDescrObject *)slot)->d_member->type == T_OBJECT_EX)
        field->at = ((PyMemberDescrObject *)slot)->d_member->offset;
    Py_XDECREF(slot);
    return 0;
}

/* Returns a new reference, or NULL with an error. */
static inline PyObject *get(PyObject *owner, const Field *field) {
    PyObject *value = field->at < 0 ? NULL : *(PyObject **)((char *)owner + field->at);
    return value ? Py_NewRef(value) : PyObject_GetAttr(owner, field->name);
}

/* Steals the reference to a value. Returns 0, or -1 with an error; for a NULL value, -1 with the error already set. */
static inline int set_new(PyObject *owner, const Field *field, PyObject *value) {
    if (!value) return -1;
    if (field->at < 0) {
        int failed = PyObject_SetAttr(owner, field->name, value);
        Py_DECREF(value);
        return failed;
    }
    PyObject **slot = (PyObject **)((char *)owner + field->at), *old = *slot;
    *slot = value;
    Py_XDECREF(old);
    return 0;
}
