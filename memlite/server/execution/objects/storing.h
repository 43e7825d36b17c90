/* Storage commands. */

/* Stores a value, which is stolen, in the place of another, and makes the item a full one or a plain one: see
`ItemTable.overwrite`. A cas unique is not kept. */
static int supersede(Runner *r, View *v, PyObject *wire, long long exptime) {
    double expires = 0;
    int full = v->bits & FULL, done = wire ? expiry(r, exptime, &expires) : ERROR;
    PyObject *state = PyList_GET_ITEM(expires ? r->full_store : r->fast_store, expires ? v->bits | FULL : v->bits & ~FULL);
    PyObject *item = NULL;
    if (done == DONE && !(expires && full) && !(item = new_item(r, expires != 0, wire, state, expires))) done = ERROR;
    if (done == DONE) {
        Py_ssize_t more = allocated(PyBytes_GET_SIZE(wire)) - allocated(v->size);
        if (expires) more += FULL_MORE + NUMBER_SIZE;
        if (full) more -= FULL_MORE + (v->expires ? NUMBER_SIZE : 0) + (v->unique ? NUMBER_SIZE : 0);
        done = resize(r, v->bits, more, 0);
    }
    if (done == DONE && item) done = PyDict_SetItem(dict_of(r, r->line), r->line, item) ? ERROR : DONE;
    else if (done == DONE) {
        done = put_new(v->item, &r->expires, PyFloat_FromDouble(expires));
        if (done == DONE && v->unique) done = put_new(v->item, &r->extra, PyLong_FromLong(0));
        if (done == DONE) done = put(v->item, &r->state, state);
        if (done == DONE) done = put(v->item, &r->wire, wire);
    }
    Py_XDECREF(item);
    Py_XDECREF(wire);
    if (done != DONE) return done;
    COUNT(r, cmd_set);
    COUNT(r, total_items);
    return DONE;
}

/* Stores another value in the place of one that is there and has no expiry; `wire` is stolen. */
static int overwrite(Runner *r, View *v, PyObject *wire) {
    PyObject *state = wire ? kept(r, v) : NULL;
    int done = !wire ? ERROR : STOP;
    if (state) done = rewrite(r, v, wire, state);
    else Py_XDECREF(wire);
    if (done != DONE) return done;
    COUNT(r, cmd_set);
    COUNT(r, total_items);
    return renumber(r, v);
}

static int join(Runner *r, View *v, Word key, Word value, int before) {
    const char *begin = value_at(v);
    Word old = {begin, value_size(v)};
    if (v->size + value.size + SAFE_DIGITS > r->safe_size) return STOP;
    Word flags = flags_of(v, key.size);
    return overwrite(r, v, before ? frame(key, flags, value, old) : frame(key, flags, old, value));
}

static int store_nothing(Runner *r) {
    int done = never_flushed(r);
    if (done == DONE) COUNT(r, cmd_set);
    return done;
}

/* Stores, and returns one of those; STOP if the twin has to. */
static int store(Runner *r, enum Mode mode, Word key, Word flags, Word value, u64 unique, long long exptime) {
    View v;
    int known = look(r, key, &v), done;
    if (known < DONE) return known;
    if (known == ABSENT) {
        PyObject *item;
        if (mode <= ADD) return insert(r, frame(key, flags, value, (Word){"", 0}), exptime, &item);
        if ((done = store_nothing(r)) != DONE) return done;
        if (mode == CAS) COUNT(r, cas_misses);
        return mode == CAS ? NOT_FOUND : NOT_STORED;
    }
    int plain = !(v.bits & FULL);
    if (mode == ADD) {
        COUNT(r, cmd_set);
        return use(r, &v, r->used) < 0 ? ERROR : NOT_STORED;
    }
    if (mode == APPEND_TO || mode == PREPEND_TO) return join(r, &v, key, value, mode == PREPEND_TO);
    if (mode == CAS && (!v.unique || v.unique != unique)) {  /* with -C, none has one */
        if (assign(r, &v, unique) < 0) return ERROR;
        COUNT(r, cmd_set);
        COUNT(r, cas_badval);
        return EXISTS;
    }
    PyObject *wire = frame(key, flags, value, (Word){"", 0});
    done = exptime || v.expires || (mode <= SET_USED && !plain) ? supersede(r, &v, wire, exptime) : overwrite(r, &v, wire);
    if (done == DONE && mode == CAS) COUNT(r, cas_hits);
    return done;
}

/* Stores, and notes the cas unique that is `shown`, if it is. */
static int store_for_unique(Runner *r, View *v, int known, Frame frame, long long exptime, int shown) {
    if (exptime || (known != ABSENT && (!r->cas || !v->unique || v->expires))) return STOP;
    /* The twin drops a unique that nobody is shown. */
    if (known != ABSENT && !shown && frame_size(&frame) != v->size) return STOP;
    PyObject *wire = framed(&frame);
    if (!wire) return ERROR;
    int done = known == ABSENT ? insert(r, wire, 0, &v->item) : overwrite(r, v, wire);
    return done == DONE && shown ? assign(r, v, 0) : done;
}
