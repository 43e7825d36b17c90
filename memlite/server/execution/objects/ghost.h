/* The fingerprints of evicted lines: the counterpart of memory/eviction/ghost.py. */

/* The place of a line among the fingerprints of evicted ones; see `Ghost`. */
typedef struct {
    PyObject *table, *next;  /* both hold the references */
    char *places;
    Py_ssize_t bucket;
    long long depth;
    unsigned print;
} Trace;

static void end_trace(Trace *t) {
    Py_CLEAR(t->table);
    Py_CLEAR(t->next);
}

static int find_trace(Runner *r, PyObject *line, Trace *t) {
    PyObject *ghost = get(r->policy, &r->ghost);
    Py_hash_t hash = PyObject_Hash(line);
    int done = ERROR;
    t->table = ghost ? get(ghost, &r->ghost_table) : NULL;
    t->next = ghost ? get(ghost, &r->ghost_next) : NULL;
    if (t->table && t->next && PyByteArray_Check(t->table) && PyByteArray_Check(t->next)) {
        long long mask = number_of(get(ghost, &r->ghost_mask));
        t->depth = number_of(get(ghost, &r->ghost_depth));
        t->bucket = hash & mask;
        t->print = (unsigned)((u64)(hash >> 28) & 0xFFFFFFFF);
        if (!t->print) t->print = 1;
        if (!PyErr_Occurred() && t->depth >= 0 && t->depth <= GHOST_DEPTH && t->bucket < PyByteArray_GET_SIZE(t->next)
            && (t->bucket + 1) * GHOST_STRIDE <= PyByteArray_GET_SIZE(t->table)) {
            t->places = PyByteArray_AS_STRING(t->table) + t->bucket * GHOST_STRIDE;
            done = DONE;
        }
    }
    Py_XDECREF(ghost);
    if (done < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "unexpected ghost");
    return done;
}

/* Whether a line was evicted recently: 1, 0, or ERROR. If so, its fingerprint is removed; see
`Ghost.take`. */
static int recall(Runner *r, PyObject *line) {
    Trace t = {0};
    int found = find_trace(r, line, &t) < 0 ? ERROR : 0;
    if (found == 0) {
        unsigned all[GHOST_DEPTH];
        int same = 0, depth = (int)t.depth;
        memcpy(all, t.places, sizeof all);
        while (same < depth && all[same] != t.print) same++;
        /* Bytes across two fingerprints may match by chance, and be found first. */
        for (int at = 0; same < depth && !found && at <= same * GHOST_WIDTH; at++) {
            if (memcmp(t.places + at, &t.print, GHOST_WIDTH)) continue;
            if (at % GHOST_WIDTH) break;
            found = 1;
            memset(t.places + at, 0, GHOST_WIDTH);
        }
    }
    end_trace(&t);
    return found;
}

/* Remembers a line that is evicted; see `Ghost.add`. */
static int remember(Runner *r, PyObject *line) {
    Trace t = {0};
    int done = find_trace(r, line, &t);
    if (done == DONE && t.depth) {
        unsigned char *next = (unsigned char *)PyByteArray_AS_STRING(t.next) + t.bucket;
        unsigned place = *next < t.depth ? *next : 0;
        *next = (unsigned char)(place + 1);
        memcpy(t.places + place * GHOST_WIDTH, &t.print, GHOST_WIDTH);
    }
    end_trace(&t);
    return done;
}
