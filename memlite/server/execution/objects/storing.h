/* Storage commands. */

/* Replaces an item's value (the reference is stolen), and makes the item a full or a plain one: see `ItemTable.overwrite`.
A cas unique is not kept. */
static int supersede(Runner *r, View *v, PyObject *wire, double expires) {
    int full = v->bits & FULL, done = wire ? DONE : ERROR;
    PyObject *state = PyList_GET_ITEM(expires ? r->full_store : r->fast_store, expires ? v->bits | FULL : v->bits & ~FULL);
    PyObject *item = NULL;
    if (done == DONE && !(expires && full) && !(item = new_item(r, expires != 0, wire, state, expires))) done = ERROR;
    if (done == DONE) {
        Py_ssize_t more = allocated(PyBytes_GET_SIZE(wire)) - allocated(v->size);
        if (expires) more += FULL_MORE + NUMBER_SIZE;
        if (full) more -= FULL_MORE + (v->expires ? NUMBER_SIZE : 0) + (v->unique ? NUMBER_SIZE : 0);
        done = resize(r, v->bits, more, 0);
    }
    if (done == DONE && item) {
        done = PyDict_SetItem(dict_of(r, r->line), r->line, item) ? ERROR : DONE;
        v->item = item;  /* borrowed from the table */
    } else if (done == DONE) {
        done = put_expiry(r, v->item, expires);
        if (done == DONE && v->unique) done = put_new(v->item, &r->extra, PyLong_FromLong(0));
        if (done == DONE) done = put(v->item, &r->state, state);
        if (done == DONE) done = put(v->item, &r->wire, wire);
    }
    Py_XDECREF(item);
    Py_XDECREF(wire);
    if (done != DONE) return done;
    v->unique = 0;
    v->bits = expires ? v->bits | FULL : v->bits & ~FULL;
    COUNT(r, cmd_set);
    COUNT(r, total_items);
    return DONE;
}

/* Replaces the value of an item without expiry; the reference `wire` is stolen. */
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

/* The same, but writes into the present reply if that has the right size and no other reference. */
static int overwrite_with(Runner *r, View *v, const Frame *frame) {
    PyObject *state = is_alone(v->wire) && frame_size(frame) == v->size ? kept(r, v) : NULL;
    if (!state) return overwrite(r, v, framed(frame));
    if (put(v->item, &r->state, state) < 0) return ERROR;
    set_hash(v->wire, -1);
    write_frame(PyBytes_AS_STRING(v->wire), frame);
    COUNT(r, cmd_set);
    COUNT(r, total_items);
    return renumber(r, v);
}

static int join(Runner *r, View *v, Word key, Word value, int before, int general) {
    const char *begin = value_at(v);
    Word old = {begin, value_size(v, begin)}, flags = flags_of(v, key.size);
    if (v->size + value.size + SAFE_DIGITS > r->safe_size) return STOP;
    PyObject *wire = before ? frame(key, flags, value, old) : frame(key, flags, old, value);
    v->value_size = old.size + value.size;
    return general && v->bits & FULL ? supersede(r, v, wire, v->expires) : overwrite(r, v, wire);
}

static int store_nothing(Runner *r) {
    int done = check_never_flushed(r);
    if (done == DONE) COUNT(r, cmd_set);
    return done;
}

/* Stores a value under the key that was looked up last with the result `known`; returns one of STORED to NOT_FOUND, or STOP
if the counterpart has to do it. Afterwards, the view is of the stored item. */
static inline int store_known(Runner *r, int how, View *v, int known, Word key, Word flags, Word value, u64 unique, long long exptime) {
    enum Mode mode = how % GENERAL;
    double expires;
    int general = how >= GENERAL, done;
    if (known == ABSENT) {
        v->unique = 0;
        v->value_size = value.size;
        if (mode <= ADD) return insert(r, frame(key, flags, value, (Word){"", 0}), exptime, &v->item);
        if ((done = store_nothing(r)) != DONE) return done;
        if (mode == CAS) COUNT(r, cas_misses);
        return mode == CAS ? NOT_FOUND : NOT_STORED;
    }
    int plain = !(v->bits & FULL);
    if (mode == ADD) {
        COUNT(r, cmd_set);
        return use(r, v, r->used) < 0 ? ERROR : NOT_STORED;
    }
    if (mode == APPEND_TO || mode == PREPEND_TO) return join(r, v, key, value, mode == PREPEND_TO, general);
    if (mode == CAS && (!v->unique || v->unique != unique)) {  /* with -C, no item has one */
        if (assign(r, v, unique) < 0) return ERROR;
        COUNT(r, cmd_set);
        COUNT(r, cas_badval);
        return EXISTS;
    }
    v->value_size = value.size;
    Frame parts = frame_of(key, flags, value, (Word){"", 0});
    if (!exptime && !v->expires && (plain || !(general || mode == SET))) done = overwrite_with(r, v, &parts);
    else if (expiry(r, exptime, &expires) < 0) return ERROR;
    else done = supersede(r, v, framed(&parts), expires);
    if (done == DONE && mode == CAS) COUNT(r, cas_hits);
    return done;
}

static int store(Runner *r, int how, View *v, Word key, Word flags, Word value, u64 unique, long long exptime) {
    int known = look(r, key, v);
    return known < DONE ? known : store_known(r, how, v, known, key, flags, value, unique, exptime);
}

/* Stores like a set in general. An item that keeps having a unique stays the same object: one
without expiry whose unique is `shown` to a client, or whose size does not change. Otherwise, the
unique is dropped, as in the counterpart. */
static int store_for_unique(Runner *r, View *v, int known, Word key, Word flags, Word value, long long exptime, int shown) {
    if (known == DONE && v->unique && !v->expires && !exptime && r->cas) {
        Frame frame = frame_of(key, flags, value, (Word){"", 0});
        if (shown || frame_size(&frame) == v->size) return overwrite_with(r, v, &frame);
    }
    int done = store_known(r, SET + GENERAL, v, known, key, flags, value, 0, exptime);
    return done == DONE && known == ABSENT && !exptime && shown && r->cas ? number(r, v) : done;
}
