/* Attributes of Python's objects for modules in C. Those with slots are read and written at their offsets, which are looked
up once; compiled classes, and those without slots, have none that are known, and are asked by name.

What is included before this is Python.h, stddef.h and structmember.h. */

typedef struct { PyObject *name; Py_ssize_t at; } Field;  /* an attribute, and where its slot is; -1 for none */

/* 0, or -1 with an error. A field that is looked up again keeps its name. */
static int find_field(Field *field, PyObject *type, const char *name) {
    field->at = -1;
    if (!field->name && !(field->name = PyUnicode_InternFromString(name))) return -1;
    PyObject *slot = PyObject_GetAttr(type, field->name);
    if (!slot) PyErr_Clear();  /* an attribute of instances alone */
    else if (Py_TYPE(slot) == &PyMemberDescr_Type && ((PyMemberDescrObject *)slot)->d_member->type == T_OBJECT_EX)
        field->at = ((PyMemberDescrObject *)slot)->d_member->offset;
    Py_XDECREF(slot);
    return 0;
}

/* A new reference, or NULL with an error. */
static inline PyObject *get(PyObject *owner, const Field *field) {
    PyObject *value = field->at < 0 ? NULL : *(PyObject **)((char *)owner + field->at);
    return value ? Py_NewRef(value) : PyObject_GetAttr(owner, field->name);
}

/* Steals the reference to a value, or passes on the error that NULL stands for: 0 or -1. */
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
