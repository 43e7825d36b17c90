/* The table: where its items are, and what is known of one of them. */

/* Learns where items are, if that has changed: `get_by_line` is another one then. STOP if a lookup does more
than look: a flush is pending, or the policy keeps an order of uses. Any call into Python may change it. */
static int follow(Runner *r) {
    r->flush_known = r->timed = 0;
    if (r->late && settle(r) < 0) return ERROR;
    PyObject *find = get(r->table, &r->get_by_line);
    if (!find) return ERROR;
    if (find == r->find) {
        Py_DECREF(find);
        return r->dicts ? DONE : STOP;
    }
    Py_XSETREF(r->find, find);
    Py_CLEAR(r->dicts);
    Py_CLEAR(r->policy);
    PyObject *index = PyObject_GetAttrString(r->table, "_items"), *lookup = NULL, *dicts = NULL, *policy = NULL;
    if (index && (lookup = PyObject_GetAttrString(index, "get")) && (dicts = PyObject_GetAttrString(index, "_dicts")))
        policy = PyObject_GetAttrString(r->table, "_policy");
    int plain = policy && lookup == find && PyList_Check(dicts) && PyObject_HasAttr(policy, r->number[N__small_bytes].name);
    for (Py_ssize_t i = 0; plain && i < PyList_GET_SIZE(dicts); i++) plain = PyDict_CheckExact(PyList_GET_ITEM(dicts, i));
    r->usual_table = 0;
    if (plain) {
        r->usual_table = (PyObject *)Py_TYPE(policy) == r->policy_type && (PyObject *)Py_TYPE(r->table) == r->table_type;
        r->dicts = Py_NewRef(dicts);
        r->policy = Py_NewRef(policy);
    }
    int failed = !policy;
    Py_XDECREF(index);
    Py_XDECREF(lookup);
    Py_XDECREF(dicts);
    Py_XDECREF(policy);
    return failed ? ERROR : plain ? DONE : STOP;
}

/* Whether an absent item may be one that a flush has removed, which is counted: STOP then. */
static int never_flushed(Runner *r) {
    if (!r->flush_known) {
        PyObject *flushed = get(r->table, &r->flushed);
        if (!flushed) return ERROR;
        r->was_flushed = flushed != Py_None;
        r->flush_known = 1;
        Py_DECREF(flushed);
    }
    return r->was_flushed ? STOP : DONE;
}

static int can_run(Runner *r) { return r->dicts != NULL; }

static PyObject *dict_of(Runner *r, PyObject *line) {
    Py_ssize_t several = PyList_GET_SIZE(r->dicts);
    if (several == 1) return PyList_GET_ITEM(r->dicts, 0);
    Py_hash_t place = PyObject_Hash(line) % several;
    return PyList_GET_ITEM(r->dicts, place < 0 ? place + several : place);
}

#include "ahead.h"

static int look_at_line(Runner *r, PyObject *line, View *v) {
    PyObject *item = PyDict_GetItemWithError(dict_of(r, line), line);
    if (!item) return PyErr_Occurred() ? ERROR : ABSENT;
    v->item = item;
    PyObject *wire = get(item, &r->wire);
    if (!wire) return ERROR;
    if (!PyBytes_CheckExact(wire)) {
        Py_DECREF(wire);
        return STOP;
    }
    long long state = number_of(get(item, &r->state));
    if (state == -1 && PyErr_Occurred()) {
        Py_DECREF(wire);
        return ERROR;
    }
    v->wire = wire;
    v->at = PyBytes_AS_STRING(wire);
    v->size = PyBytes_GET_SIZE(wire);
    Py_DECREF(wire);  /* the item has it */
    v->bits = (int)(state & MASK);
    v->expires = 0;
    v->unique = 0;
    if (!(v->bits & FULL)) return Py_TYPE(item) == (PyTypeObject *)r->item_type ? DONE : STOP;
    if (Py_TYPE(item) != (PyTypeObject *)r->full_type) return STOP;
    PyObject *extra = get(item, &r->extra);
    if (!extra) return ERROR;
    int number = PyLong_CheckExact(extra);
    if (number) v->unique = PyLong_AsUnsignedLongLong(extra);
    Py_DECREF(extra);
    PyObject *expires = number && !PyErr_Occurred() ? get(item, &r->expires) : NULL;
    if (!expires) return number ? ERROR : STOP;
    v->expires = PyFloat_AsDouble(expires);
    Py_DECREF(expires);
    if (v->expires == 0) return DONE;
    return now(r) < 0 ? ERROR : v->expires > r->now ? DONE : STOP;
}

/* DONE, ABSENT, or STOP for an item that is not plain. */
static int look(Runner *r, Word key, View *v) {
    if (key.size < 1 || key.size > LONGEST_KEY) return STOP;
    PyObject *line = line_for(r, key);
    if (!line) return ERROR;
    Py_XSETREF(r->line, line);
    return look_at_line(r, line, v);
}
