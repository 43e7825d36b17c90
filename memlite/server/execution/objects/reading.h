/* Reads of the text protocol. */

static int get_miss(Runner *r) {
    int done = check_never_flushed(r);
    if (done == DONE) COUNT(r, get_misses);
    return done;
}

/* Records the read of an item without a cas unique, and assigns one. The item is looked up again: if it is requested twice,
it is another object by now. */
static int use_unnumbered(Runner *r, Word key, u64 *unique) {
    View v;
    if (look(r, key, &v) != DONE || use_read(r, &v) < 0 || assign(r, &v, 0) < 0) return ERROR;
    *unique = v.unique;
    return DONE;
}

/* `get <key>*`, and `gets` if the uniques are shown. */
static int text_get(Runner *r, const char *start, const char *at, const char *end, int uniques, const char **after) {
    struct { PyObject *item, *wire; u64 unique; } found[MOST_KEYS];
    Word keys[MOST_KEYS];  /* if uniques are shown: keys of the hits without one, in order */
    Py_ssize_t hits = 0, misses = 0, room = END_SIZE, unnumbered = 0, next = 0;
    View v;
    for (;; at++) {
        Word key = {at, 0};
        at = word_end(at, end);
        key.size = at - key.at;
        if (at == end || hits + misses == MOST_KEYS) return STOP;
        if (*at == ' ' && r->looks && r->ahead_next == r->ahead_count) look_ahead(r, key.at, end, 0, 1);
        int known = look(r, key, &v);
        if (known < DONE) return known;
        if (known == ABSENT) {
            if (asks_for_nodes(key)) return STOP;
            misses++;
        } else {
            if (uniques && r->cas && !v.unique) keys[unnumbered++] = key;
            found[hits].item = v.item;
            found[hits].wire = v.wire;
            found[hits++].unique = v.unique;
            room += v.size + (uniques ? 1 + 20 : 0);
        }
        if (*at == '\r' && at + 1 < end && at[1] == '\n') break;
        if (*at != ' ') return STOP;
    }
    *after = at + 2;
    int done = misses ? check_never_flushed(r) : DONE;
    int alone = hits == 1 && !misses && !uniques && !r->reply_size && !PyList_GET_SIZE(r->out) && *after == end;
    if (done == DONE && !alone) done = make_room(r, room);
    if (done != DONE) return done;
    for (Py_ssize_t i = 0; i < hits; i++) {
        if (uniques && r->cas && !found[i].unique) {
            if (use_unnumbered(r, keys[next++], &found[i].unique) < 0) return ERROR;
        } else {
            long long state = number_of(get(found[i].item, &r->state));  /* the same item may be requested twice */
            if (state == -1 && PyErr_Occurred()) return ERROR;
            if (put(found[i].item, &r->state, PyList_GET_ITEM(r->read, state & MASK)) < 0) return ERROR;
        }
        if (alone) {
            r->whole = Py_NewRef(found[i].wire);
            break;
        }
        const char *wire = PyBytes_AS_STRING(found[i].wire);
        Py_ssize_t size = PyBytes_GET_SIZE(found[i].wire) - END_SIZE;
        if (uniques) {
            Py_ssize_t head = (const char *)memchr(wire, '\n', size) - 1 - wire;
            append(r, wire, head);
            APPEND(r, " ");
            append_number(r, found[i].unique);
            append(r, wire + head, size - head);
        } else append(r, wire, size);
    }
    if (!alone) APPEND(r, "END\r\n");
    if (hits) count_of(r, N_hits, hits);
    if (misses) count_of(r, N_get_misses, misses);
    return DONE;
}
