/* Creation of a runner on a shared table: see ../_native.c. */

#define MODULE "memlite.server.execution.records._native"

static int Runner_init(Runner *r, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"engine", "table", "text_fallback", "binary_fallback", "replies", "at_most", NULL};
    PyObject *engine, *table, *text, *binary, *replies, *example, *usage = NULL, *cas = NULL, *safe = NULL;
    if (r->engine) return PyErr_Format(PyExc_TypeError, "a runner can be initialized only once"), -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOO!n:Runner", names, &engine, &table, &text, &binary, &PyList_Type, &replies,
                                     &r->at_most)) return -1;
    if (!(r->api = PyCapsule_Import(API_NAME, 0))) return -1;
    if (r->api->version != API_VERSION) return PyErr_Format(PyExc_NotImplementedError, "the table was compiled for another version"), -1;
    if (!PyObject_TypeCheck(table, r->api->type)) return PyErr_Format(PyExc_TypeError, "expected a table implemented in C"), -1;
    /* Python may have been built to hash short texts differently. */
    r->hash = PyHash_GetFuncDef()->hash;
    if (!(example = PyBytes_FromString("get k\r\n"))) return -1;
    Py_hash_t hash = PyObject_Hash(example);
    Py_DECREF(example);
    if (hash != r->hash("get k\r\n", 7)) return PyErr_Format(PyExc_NotImplementedError, "bytes objects are hashed in a different way"), -1;
    r->engine = Py_NewRef(engine);
    r->table = Py_NewRef(table);
    r->text_fallback = Py_NewRef(text);
    r->binary_fallback = Py_NewRef(binary);
    r->replies = Py_NewRef(replies);
    if (!(r->copy = PyMem_Malloc(MOST_COPIED))) return PyErr_NoMemory(), -1;
    if (!(r->counters = PyObject_GetAttrString(engine, "counters")) || !(r->clock = PyObject_GetAttrString(engine, "clock"))) return -1;
    if ((usage = PyObject_GetAttrString(engine, "usage"))) r->fast_read = PyObject_GetAttrString(usage, "fast_read");
    Py_XDECREF(usage);
    if (r->fast_read && !PyList_CheckExact(r->fast_read)) PyErr_SetString(PyExc_TypeError, "states must be a list");
    if (!PyErr_Occurred() && (cas = PyObject_GetAttrString(engine, "cas_enabled"))) r->cas = (char)PyObject_IsTrue(cas);
    if (!PyErr_Occurred() && (safe = PyObject_GetAttrString(engine, "safe_size"))) r->safe_size = PyLong_AsSsize_t(safe);
    Py_XDECREF(cas);
    Py_XDECREF(safe);
    PyObject *items = PyErr_Occurred() ? NULL : PyObject_GetAttrString(engine, "items");
    PyObject *mapping = items ? PyObject_GetAttrString(items, "mapping") : NULL;
    if (mapping) r->origin = number_of(PyObject_GetAttrString(mapping, "origin"));
    Py_XDECREF(items);
    Py_XDECREF(mapping);
    PyObject *type = (PyObject *)Py_TYPE(r->counters);
    int done = PyErr_Occurred() || find_field(&r->until, type, "until_slow_sample") ? ERROR : DONE;
    if (done == DONE && find_field(&r->second, (PyObject *)Py_TYPE(r->clock), "second")) done = ERROR;
    if (done == DONE) done = know_clock(r);
    for (int i = 0; done == DONE && i < COUNTED; i++) done = find_field(&r->counter[i], type, COUNTER_NAMES[i]) ? ERROR : DONE;
    return done == DONE ? 0 : -1;
}

#define REFERENCES(X) X(engine) X(table) X(counters) X(clock) X(fast_read) X(text_fallback) X(binary_fallback) X(replies)
#define FIELDS(r) &(r)->until, &(r)->second, &(r)->monotonic, &(r)->offset
