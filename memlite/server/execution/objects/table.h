/* The table: finding its items, and the view of an item. */

/* Finds out where items are, if that has changed: `get_by_line` is then a different function. STOP if a lookup has side
effects: a flush is pending, or the policy keeps an order of uses. Any call into Python may change this. */
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

/* Checks that an absent item was not removed by a flush, which would be counted; STOP if it may have been. */
static int check_never_flushed(Runner *r) {
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

static inline PyObject *dict_at(Runner *r, Py_hash_t hash) {
    Py_ssize_t several = PyList_GET_SIZE(r->dicts);
    if (several == 1) return PyList_GET_ITEM(r->dicts, 0);
    Py_hash_t place = hash % several;
    return PyList_GET_ITEM(r->dicts, place < 0 ? place + several : place);
}

static PyObject *dict_of(Runner *r, PyObject *line) { return dict_at(r, PyObject_Hash(line)); }

#include "dicts.h"
#include "ahead.h"

/* Fills in the view of an item; STOP if it is not plain. */
static inline int look_at(Runner *r, PyObject *item, View *v) {
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

/* Looks a key up with the dict API. */
static NOT_INLINE int look_for_line(Runner *r, Word key, View *v) {
    PyObject *line = make_line(key);
    if (!line) return ERROR;
    Py_XSETREF(r->line, line);
    PyObject *item = PyDict_GetItemWithError(dict_of(r, line), line);
    return item ? look_at(r, item, v) : PyErr_Occurred() ? ERROR : ABSENT;
}

/* DONE, ABSENT, or STOP for an item that is not plain. */
static int look(Runner *r, Word key, View *v) {
    if (key.size < 1 || key.size > LONGEST_KEY) return STOP;
    if (!dicts_known) return look_for_line(r, key, v);
    Py_hash_t hash = hash_for(r, key);
    const Keys *keys = keys_of(dict_at(r, hash));
    if (keys->kind) return look_for_line(r, key, v);
    const Entry *entry = find_entry(keys, hash, key);
    if (!entry) {
        r->absent = (Ahead){key, hash};
        Py_CLEAR(r->line);
        return ABSENT;
    }
    Py_XSETREF(r->line, Py_NewRef(entry->key));  /* with it, the dict finds the item again without comparing bytes */
    return look_at(r, entry->value, v);
}

/* Makes the line of the absent key that was looked up last, unless it has been made. Borrowed. */
static PyObject *absent_line(Runner *r) {
    if (!r->line && (r->line = make_line(r->absent.key))) set_hash(r->line, r->absent.hash);
    return r->line;
}

/* The name of the item that was looked up last; borrowed from the table, if lines are found there. */
#define NAMES_LAST dicts_known
typedef PyObject *Name;
static inline Name last_name(Runner *r) { return r->line; }
static inline void set_last_name(Runner *r, Name line) { Py_XSETREF(r->line, Py_NewRef(line)); }
static inline int is_same(Name one, Name other) { return one == other; }
