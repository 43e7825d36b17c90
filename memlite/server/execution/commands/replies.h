/* Replies of a run, collected in one buffer. */

static int flush_replies(Runner *r) {
    if (!r->reply_size) return DONE;
    PyObject *reply = PyBytes_FromStringAndSize(r->reply, r->reply_size);
    int failed = !reply || PyList_Append(r->out, reply);
    Py_XDECREF(reply);
    r->reply_size = 0;
    return failed ? ERROR : DONE;
}

/* Makes room for a reply of `size` bytes at r->reply + r->reply_size; STOP if it is too large to be copied. */
static int make_room(Runner *r, Py_ssize_t size) {
    Py_ssize_t needed = r->reply_size + size;
    if (needed <= r->reply_room) return DONE;
    if (needed > MOST_REPLIES) return STOP;
    Py_ssize_t room = needed < MOST_REPLIES / 2 ? 2 * needed : MOST_REPLIES;
    char *larger = PyMem_Realloc(r->reply, room);
    if (!larger) return PyErr_NoMemory(), ERROR;
    r->reply = larger;
    r->reply_room = room;
    return DONE;
}

static inline void append(Runner *r, const char *from, Py_ssize_t size) {
    memcpy(r->reply + r->reply_size, from, size);
    r->reply_size += size;
}
#define APPEND(r, text) append(r, text, sizeof text - 1)

static int answer(Runner *r, const char *text, Py_ssize_t size) {
    int done = make_room(r, size);
    if (done == DONE) append(r, text, size);
    return done;
}
#define ANSWER(r, text) answer(r, text, sizeof text - 1)

static void append_number(Runner *r, u64 number) {
    r->reply_size += write_digits(r->reply + r->reply_size, number);
}
