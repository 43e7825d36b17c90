/* Items: their replies, states and sizes, and the creation of new ones. */

/* Creates the reply to a get. */
static PyObject *framed(const Frame *frame) {
    PyObject *wire = PyBytes_FromStringAndSize(NULL, frame_size(frame));
    if (wire) write_frame(PyBytes_AS_STRING(wire), frame);
    return wire;
}

static PyObject *frame(Word key, Word flags, Word one, Word two) {
    Frame frame = frame_of(key, flags, one, two);
    return framed(&frame);
}

static int use(Runner *r, const View *v, PyObject *states) {
    return put(v->item, &r->state, PyList_GET_ITEM(states, v->bits));
}

static int use_read(Runner *r, const View *v) { return use(r, v, r->read); }

static inline int was_fetched(const View *v) { return (v->bits & FETCHED) != 0; }

enum { ROOM_TO_TOUCH = 0 };  /* bytes in addition to the reply */

/* The seconds since the last use. */
static int idle_seconds(Runner *r, const View *v, long long *idle) {
    long long second = number_of(get(r->clock, &r->second)) - r->epoch, state = number_of(get(v->item, &r->state));
    *idle = second > state >> STATE_BITS ? second - (state >> STATE_BITS) : 0;
    return PyErr_Occurred() ? ERROR : DONE;
}

/* The state of an item after a change of its value in place; NULL if that is not possible. See `_kept`. */
static PyObject *kept(Runner *r, const View *v) {
    if (!(v->bits & FULL)) return PyList_GET_ITEM(r->fast_store, v->bits);
    return v->expires || v->unique ? PyList_GET_ITEM(r->full_store, v->bits) : NULL;
}

static Py_ssize_t allocated(Py_ssize_t size) {
    size = (size + 33 + 15) & -16;
    return size <= SMALL_OBJECT ? size : size + (size >> 5) * 3;
}

/* Accounts for `more` bytes taken by an item. STOP if there is no room for them, unless `forced`. */
static int resize(Runner *r, int bits, Py_ssize_t more, int forced) {
    if (!more) return DONE;
    if (change(r, N_used, more) < 0) return ERROR;
    if (!forced && more > 0) {
        if (learn(r, N__room) < 0) return ERROR;
        if (r->now_is[N_used] > r->now_is[N__room]) return change(r, N_used, -more) < 0 ? ERROR : STOP;
    }
    return change(r, bits & MAIN ? N__main_bytes : N__small_bytes, more);
}

/* Replaces the value of an item (the reference is stolen). STOP if there is no room for it. */
static int rewrite(Runner *r, const View *v, PyObject *wire, PyObject *state) {
    int done = resize(r, v->bits, allocated(PyBytes_GET_SIZE(wire)) - allocated(v->size), 0);
    if (done == DONE) done = put(v->item, &r->state, state);
    if (done == DONE) done = put(v->item, &r->wire, wire);
    Py_DECREF(wire);
    return done;
}

/* Sets the expiry of a full item. */
static int put_expiry(Runner *r, PyObject *item, double expires) {
    PyObject *time = r->expires.at < 0 ? NULL : *(PyObject **)((char *)item + r->expires.at);
    if (time && is_alone(time) && PyFloat_CheckExact(time)) {
        ((PyFloatObject *)time)->ob_fval = expires;
        return DONE;
    }
    return put_new(item, &r->expires, PyFloat_FromDouble(expires));
}

/* Allocates an item without contents. Items are never part of a cycle, so the garbage collector need not track them. */
static PyObject *allocate(PyTypeObject *type) {
    PyObject *item;
    if (type->tp_alloc == PyType_GenericAlloc && PyType_IS_GC(type) && !type->tp_itemsize) {
        if ((item = PyObject_GC_New(PyObject, type))) memset(item + 1, 0, type->tp_basicsize - sizeof *item);
        return item;
    }
    item = type->tp_alloc(type, 0);
    if (item && PyObject_IS_GC(item)) PyObject_GC_UnTrack(item);
    return item;
}

/* A new item; a full one has no cas unique. */
static PyObject *new_item(Runner *r, int full, PyObject *wire, PyObject *state, double expires) {
    PyTypeObject *type = (PyTypeObject *)(full ? r->full_type : r->item_type);
    PyObject *time = !full ? NULL : expires ? PyFloat_FromDouble(expires) : Py_NewRef(r->zero), *item;
    if (full && !time) return NULL;
    if (r->wire.at < 0 || r->state.at < 0 || r->expires.at < 0 || r->extra.at < 0) {
        item = PyObject_CallFunctionObjArgs((PyObject *)type, wire, state, time, NULL);
    } else if ((item = !full && r->spare ? r->spare : allocate(type))) {
        if (item == r->spare) r->spare = NULL;
        int done = put(item, &r->wire, wire);
        if (done == DONE) done = put(item, &r->state, state);
        if (done == DONE && full) done = put(item, &r->expires, time);
        if (done == DONE && full) done = put_new(item, &r->extra, PyLong_FromLong(0));
        if (done < 0) Py_CLEAR(item);
    }
    Py_XDECREF(time);
    return item;
}

/* Reads the states of new items, which change once a second. */
static int know_fresh(Runner *r) {
    PyObject *fresh = get(r->usage, &r->fresh_now);
    if (!fresh) return ERROR;
    long long state = number_of(Py_NewRef(fresh));
    if (r->fresh[0] && state == r->fresh_state) {  /* in a build by mypyc, it may be a different object */
        Py_DECREF(fresh);
        return DONE;
    }
    Py_CLEAR(r->fresh[0]);
    for (int i = 1; i < 4; i++) {
        PyObject *one = PyObject_CallFunction(r->shared, "L", state | (i & 1 ? MAIN : 0) | (i & 2 ? FULL : 0));
        if (!one) {
            Py_DECREF(fresh);
            return ERROR;
        }
        Py_XSETREF(r->fresh[i], one);
    }
    r->fresh[0] = fresh;  /* last: it marks the other states as known */
    r->fresh_state = state;
    return DONE;
}

/* Assigns the next cas unique, which must not equal the one that a client compares it with. */
static int next_unique(Runner *r, View *v, u64 compared) {
    if (!r->last_unique) {
        PyObject *last = get(r->engine, &r->version);
        if (last) r->last_unique = PyLong_AsUnsignedLongLong(last);
        Py_XDECREF(last);
        if (PyErr_Occurred()) return r->last_unique = 0, ERROR;
    }
    if (++r->last_unique == compared) r->last_unique++;
    v->unique = r->last_unique;
    PyObject *extra = r->extra.at < 0 ? NULL : *(PyObject **)((char *)v->item + r->extra.at);
    if (extra && v->unique <= LLONG_MAX && renumbered(extra, (long long)v->unique)) return DONE;
    return put_new(v->item, &r->extra, PyLong_FromUnsignedLongLong(v->unique));
}

/* Assigns the next cas unique to an item that has one. */
static int renumber(Runner *r, View *v) { return v->unique ? next_unique(r, v, 0) : DONE; }

/* The state of a full item, as an object shared with other items; those of one second are cached. Borrowed. */
static PyObject *full_state(Runner *r, long long state) {
    state |= FULL;
    if (state >> STATE_BITS != r->full_second) {
        for (int i = 0; i <= MASK; i++) if (PyList_SetItem(r->full_states, i, Py_NewRef(Py_None))) return NULL;
        r->full_second = state >> STATE_BITS;
    }
    PyObject *known = PyList_GET_ITEM(r->full_states, state & MASK);
    if (known != Py_None) return known;
    known = PyObject_CallFunction(r->shared, "L", state);
    return known && !PyList_SetItem(r->full_states, state & MASK, known) ? known : NULL;
}

/* Replaces the plain item that was looked up last with a full one, without accounting for its size. If the state is NULL, it
keeps the present one. */
static int make_full(Runner *r, View *v, PyObject *state, double expires) {
    PyObject *wire = get(v->item, &r->wire), *item = NULL;
    if (!state) {
        long long present = number_of(get(v->item, &r->state));
        state = PyErr_Occurred() ? NULL : full_state(r, present);
    }
    if (wire && state) item = new_item(r, 1, wire, state, expires);
    int done = item && !PyDict_SetItem(dict_of(r, r->line), r->line, item) ? DONE : ERROR;
    Py_XDECREF(wire);
    Py_XDECREF(item);
    if (done == DONE) v->item = item;  /* borrowed from the table */
    return done;
}

/* Gives a new item a cas unique, which makes it a full item. */
static int number(Runner *r, View *v) {
    long long bits = number_of(get(v->item, &r->state)) & MASK;
    if (make_full(r, v, r->fresh[bits & MAIN ? 3 : 2], 0) < 0 || next_unique(r, v, 0) < 0) return ERROR;
    return resize(r, (int)bits, FULL_MORE + NUMBER_SIZE, 1);
}

/* Assigns a cas unique to the item that was looked up or stored last, if it has none; see `with_unique`. */
static int assign(Runner *r, View *v, u64 compared) {
    if (v->unique || !r->cas) return DONE;
    long long bits = number_of(get(v->item, &r->state));
    if (bits == -1 && PyErr_Occurred()) return ERROR;
    int full = Py_TYPE(v->item) == (PyTypeObject *)r->full_type;
    if ((!full && make_full(r, v, NULL, 0) < 0) || next_unique(r, v, compared) < 0) return ERROR;
    return resize(r, (int)(bits & MASK), full ? NUMBER_SIZE : FULL_MORE + NUMBER_SIZE, 1);
}
