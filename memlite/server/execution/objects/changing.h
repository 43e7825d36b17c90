/* Changes of existing items: numbers, expiries and removal. */

static int counted(Runner *r, int down) {
    if (down) COUNT(r, decr_hits);
    else COUNT(r, incr_hits);
    return DONE;
}

/* Stores a number that takes more room, which counts as a new value; see `Engine._count`. */
static int count_with_room(Runner *r, View *v, Word digits, int down) {
    Word key = {v->at + 6, PyBytes_GET_SIZE(r->line) - 6};
    PyObject *wire = frame(key, flags_of(v, key.size), digits, (Word){"", 0});
    int done = v->bits & FULL ? supersede(r, v, wire, v->expires) : overwrite(r, v, wire);
    if (done != DONE) return done;
    count_of(r, N_cmd_set, -1);  /* not a storage command */
    return counted(r, down);
}

/* Adds to a number; see `count_in_place`. */
static int count_in_place(Runner *r, View *v, u64 delta, int down, u64 *number) {
    PyObject *state = kept(r, v);
    char digits[20];
    int done = count_of_item(v, delta, down, number, digits);
    if (done > GROWS) return count_with_room(r, v, (Word){digits, done - GROWS}, down);
    if (!state || done != DONE) return STOP;
    const char *value = value_at(v);
    PyObject *wire = v->wire;
    int alone = is_alone(wire);
    if (!alone && !(wire = PyBytes_FromStringAndSize(v->at, v->size))) return ERROR;
    /* It stays the same item, and counts as fetched if it did before. */
    if (v->bits & FETCHED) state = PyList_GET_ITEM(r->read, v->bits & (FRESH | FULL));
    if (alone && put(v->item, &r->state, state) < 0) return ERROR;
    if (alone) set_hash(wire, -1);
    memcpy(PyBytes_AS_STRING(wire) + (value - v->at), digits, value_size(v, value));
    if ((!alone && rewrite(r, v, wire, state) < 0) || renumber(r, v) < 0) return ERROR;
    return counted(r, down);
}


/* Stores the first number of a key that is absent; see `_begin_count`. */
static int begin_count(Runner *r, View *v, Word key, u64 number, long long exptime) {
    char digits[20];
    Word value = {digits, write_digits(digits, number)};
    v->unique = 0;
    int done = insert(r, frame(key, (Word){"0", 1}, value, (Word){"", 0}), exptime, &v->item);
    if (done == DONE) count_of(r, N_cmd_set, -1);  /* not a storage command */
    return done;
}

static int count_miss(Runner *r, int down) {
    int done = check_never_flushed(r);
    if (done == DONE) count_of(r, down ? N_decr_misses : N_incr_misses, 1);
    return done;
}

/* Changes the expiry of an item; see `update_metadata`. A plain item becomes a full one. The view keeps the old expiry. */
static inline int renew(Runner *r, View *v, PyObject *state, double expires) {
    if (!(v->bits & FULL)) {
        if (!expires) return DONE;
        return make_full(r, v, state, expires) < 0 ? ERROR : resize(r, v->bits, FULL_MORE + NUMBER_SIZE, 1);
    }
    if (!expires && !v->expires) return DONE;
    if ((expires ? put_expiry(r, v->item, expires) : put(v->item, &r->expires, r->zero)) < 0) return ERROR;
    return resize(r, v->bits, !v->expires ? NUMBER_SIZE : expires ? 0 : -NUMBER_SIZE, 1);
}

/* Touches an item; see `retime_plain`. */
static int retime(Runner *r, View *v, long long exptime) {
    double expires;
    if (exptime < 0 || exptime > INT_MAX) return STOP;
    if (expiry(r, exptime, &expires) < 0) return ERROR;
    PyObject *state = PyList_GET_ITEM(r->read, expires ? v->bits | FULL : v->bits);
    int done = renew(r, v, state, expires);
    if (done != DONE) return done;
    COUNT(r, cmd_touch);
    COUNT(r, touch_hits);
    return put(v->item, &r->state, state);
}

/* Counts, and changes the item's expiry unless that is NULL. */
static int count_in_general(Runner *r, View *v, u64 delta, int down, u64 *number, const double *expires) {
    int done = count_in_place(r, v, delta, down, number);
    return done == DONE && expires ? renew(r, v, NULL, *expires) : done;
}

enum { MARKS_STALE = 1, REMOVES_ON_CONDITION = 1 };

/* Marks an item as stale: it then has meta flags but no cas unique; see `MetaEngine.remove`. */
static int mark_stale(Runner *r, View *v, double expires) {
    int full = Py_TYPE(v->item) == (PyTypeObject *)r->full_type;
    if (renew(r, v, NULL, expires) < 0) return ERROR;
    if (Py_TYPE(v->item) != (PyTypeObject *)r->full_type && make_full(r, v, NULL, 0) < 0) return ERROR;
    if (put(v->item, &r->extra, r->stale) < 0) return ERROR;
    /* If the item now has an expiry, `renew` has already accounted for a plain one becoming a full
    one. */
    Py_ssize_t more = META_FLAGS_SIZE + (v->unique ? 0 : NUMBER_SIZE) + (full || expires ? 0 : FULL_MORE);
    return resize(r, v->bits, more, 1);
}

/* The same for an item that was marked as stale here before; if the exptime is -1 (none), nothing changes. */
static int mark_again(Runner *r, Word key, long long exptime) {
    if (key.size < 1 || key.size > LONGEST_KEY) return STOP;
    PyObject *item = PyDict_GetItemWithError(dict_of(r, r->line), r->line);
    if (!item) return PyErr_Occurred() ? ERROR : STOP;
    if (Py_TYPE(item) != (PyTypeObject *)r->full_type) return STOP;
    PyObject *extra = get(item, &r->extra), *time = get(item, &r->expires);
    View v = {.item = item, .expires = time ? PyFloat_AsDouble(time) : 0};
    int stale = extra == r->stale;
    Py_XDECREF(extra);
    Py_XDECREF(time);
    long long state = number_of(get(item, &r->state));
    double expires = 0;
    if (PyErr_Occurred() || (v.expires && now(r) < 0)) return ERROR;
    if (!stale || (v.expires && v.expires <= r->now)) return STOP;
    if (exptime < 0) return DONE;
    v.bits = (int)(state & MASK);
    return expiry(r, exptime, &expires) < 0 ? ERROR : renew(r, &v, NULL, expires);
}

static int touch_miss(Runner *r) {
    int done = check_never_flushed(r);
    if (done == DONE) {
        COUNT(r, cmd_touch);
        COUNT(r, touch_misses);
    }
    return done;
}

static int delete_miss(Runner *r) {
    int done = check_never_flushed(r);
    if (done == DONE) COUNT(r, delete_misses);
    return done;
}

/* Removes an item; see `ItemTable.remove`. If removed items have left many places in queues, the table frees some. */
static int delete_item(Runner *r, const View *v) {
    PyObject *line = r->line;
    if (r->usual_table && (learn(r, N__left_bytes) < 0 || learn(r, N__left_limit) < 0)) return ERROR;
    if (!r->usual_table || r->now_is[N__left_bytes] + left_by(line) > r->now_is[N__left_limit]) {
        if (settle(r) < 0) return ERROR;
        PyObject *item = Py_NewRef(v->item);
        Py_INCREF(line);
        PyObject *none = PyObject_CallMethod(r->table, "remove", "OO", line, item);
        Py_DECREF(item);
        Py_DECREF(line);
        if (!none) return ERROR;
        Py_DECREF(none);
        COUNT(r, delete_hits);
        return follow(r) < 0 ? ERROR : DONE;
    }
    Py_ssize_t size = PLAIN_SIZE + allocated(v->size) + allocated(PyBytes_GET_SIZE(line));
    if (v->bits & FULL) size += FULL_MORE + (v->expires ? NUMBER_SIZE : 0) + (v->unique ? NUMBER_SIZE : 0);
    PyObject *left = get(r->policy, &r->left), *queue = PyLong_FromLong(v->bits & MAIN);
    int done = left && queue && !PyObject_SetItem(left, line, queue) ? DONE : ERROR;
    Py_XDECREF(left);
    Py_XDECREF(queue);
    if (done == DONE) done = change(r, N__left_bytes, left_by(line));
    if (done == DONE) done = resize(r, v->bits, -size, 1);
    if (done == DONE && PyDict_DelItem(dict_of(r, line), line)) done = ERROR;
    if (done == DONE) COUNT(r, delete_hits);
    return done;
}
