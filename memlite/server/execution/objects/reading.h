/* Reads of the text protocol. */

static int get_miss(Runner *r) {
    int done = never_flushed(r);
    if (done == DONE) COUNT(r, get_misses);
    return done;
}

typedef struct { PyObject *item, *wire, *line; u64 unique; } Hit;  /* `line`: if it lacks a unique; a reference */

/* Notes that an item is read. One that lacks a unique gets it, and may have become another object if it is asked for twice. */
static int use_hit(Runner *r, Hit *hit) {
    if (!hit->line) {
        long long state = number_of(get(hit->item, &r->state));  /* the same item may be asked for twice */
        if (state == -1 && PyErr_Occurred()) return ERROR;
        return put(hit->item, &r->state, PyList_GET_ITEM(r->read, state & MASK));
    }
    View v;
    Py_XSETREF(r->line, hit->line);
    hit->line = NULL;
    if (look_at_line(r, r->line, &v) != DONE || use_read(r, &v) < 0 || assign(r, &v, 0) < 0) return ERROR;
    hit->unique = v.unique;
    return DONE;
}

/* Appends the reply of an item, with its cas unique if that is shown, and without END. */
static void append_hit(Runner *r, const Hit *hit, int uniques) {
    const char *wire = PyBytes_AS_STRING(hit->wire);
    Py_ssize_t size = PyBytes_GET_SIZE(hit->wire) - END_SIZE;
    if (uniques) {
        Py_ssize_t head = (const char *)memchr(wire, '\n', size) - 1 - wire;
        append(r, wire, head);
        APPEND(r, " ");
        append_number(r, hit->unique);
        append(r, wire + head, size - head);
    } else append(r, wire, size);
}

/* Looks up the keys of a get, up to the end of the line. STOP if one of them is not plain. */
static int find_hits(Runner *r, const char *at, const char *end, int uniques, const char **after, Hit *found,
                     Py_ssize_t *hits, Py_ssize_t *misses, Py_ssize_t *room) {
    View v;
    for (;; at++) {
        Word key = {at, 0};
        while (at < end && (unsigned char)*at > ' ') at++;
        key.size = at - key.at;
        if (at == end || *hits + *misses == MOST_KEYS) return STOP;
        if (*at == ' ' && r->looks && r->ahead_next == r->ahead_count) look_ahead(r, key.at, end, 0, 1);
        int known = look(r, key, &v);
        if (known < DONE) return known;
        if (known == ABSENT) ++*misses;
        else {
            PyObject *line = uniques && r->cas && !v.unique ? Py_NewRef(r->line) : NULL;
            found[(*hits)++] = (Hit){v.item, v.wire, line, r->cas ? v.unique : 0};
            *room += v.size + (uniques ? 1 + 20 : 0);
        }
        if (*at == '\r' && at + 1 < end && at[1] == '\n') break;
        if (*at != ' ') return STOP;
    }
    *after = at + 2;
    return *misses ? never_flushed(r) : DONE;
}

/* `get <key>*`, and `gets` if the uniques are shown. */
static int text_get(Runner *r, const char *start, const char *at, const char *end, int uniques, const char **after) {
    Hit found[MOST_KEYS];
    Py_ssize_t hits = 0, misses = 0, room = END_SIZE;
    int done = find_hits(r, at, end, uniques, after, found, &hits, &misses, &room);
    int alone = hits == 1 && !misses && !uniques && !r->reply_size && !PyList_GET_SIZE(r->out) && *after == end;
    if (done == DONE && !alone) done = make_room(r, room);
    for (Py_ssize_t i = 0; done == DONE && i < hits; i++) {
        if ((done = use_hit(r, found + i)) != DONE) break;
        if (alone) r->whole = Py_NewRef(found[i].wire);
        else append_hit(r, found + i, uniques);
    }
    if (uniques) for (Py_ssize_t i = 0; i < hits; i++) Py_XDECREF(found[i].line);
    if (done != DONE) return done;
    if (!alone) APPEND(r, "END\r\n");
    if (hits) count_of(r, N_hits, hits);
    if (misses) count_of(r, N_get_misses, misses);
    return DONE;
}
