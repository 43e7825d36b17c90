/* Numbers of the table and its policy. They are read on first use, and written back when the run ends, or before any
Python code runs that may read them. */

static inline PyObject *owner_of(Runner *r, int which) {
    return which < BELONG_TO_TABLE ? r->table : r->policy;
}

static int read_number_of(Runner *r, int which) {
    r->now_is[which] = number_of(get(owner_of(r, which), &r->number[which]));
    if (r->now_is[which] == -1 && PyErr_Occurred()) return ERROR;
    r->was[which] = r->now_is[which];
    r->known |= 1u << which;
    return DONE;
}

static inline int learn(Runner *r, int which) {
    return r->known >> which & 1 ? DONE : read_number_of(r, which);
}

static int change(Runner *r, int which, long long more) {
    if (!more) return DONE;
    if (learn(r, which) < 0) return ERROR;
    r->now_is[which] += more;
    r->changed |= 1u << which;
    return DONE;
}

/* Writes changed numbers back. If memory for one cannot be allocated, its change is late: it is
made before the next run. */
static int settle(Runner *r) {
    int done = DONE;
    while (r->changed && done == DONE) {
        int which = __builtin_ctz(r->changed);
        PyObject *owner = owner_of(r, which);
        long long before = r->late ? number_of(get(owner, &r->number[which])) : r->was[which];
        if (before == -1 && PyErr_Occurred()) done = ERROR;
        else done = put_number(owner, &r->number[which], before + r->now_is[which] - r->was[which]);
        if (done == DONE) r->changed &= r->changed - 1;
    }
    if (r->last_unique && done == DONE) {
        long long given = r->late ? number_of(get(r->engine, &r->version)) : 0;  /* Python may have assigned more meanwhile */
        if (given == -1 && PyErr_Occurred()) done = ERROR;
        else if ((u64)given < r->last_unique) done = put_new(r->engine, &r->version, PyLong_FromUnsignedLongLong(r->last_unique));
        if (done == DONE) r->last_unique = 0;
    }
    r->known = r->changed;
    r->late = r->changed || r->last_unique;
    return done;
}
