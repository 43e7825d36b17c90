/* The requests that a node has not answered yet, and the check whether a reply matches its request: expected.py. */

static PyObject *expected;  /* the table there */

/* Returns the end of the word at `at`, in a line that ends at `end`; skips spaces before it. */
static const char *next_word(const char **at, const char *end) {
    while (*at < end && **at == ' ') ++*at;
    const char *space = *at < end ? memchr(*at, ' ', end - *at) : NULL;
    return space ? space : end;
}

/* Returns whether [at, end) is an error line. */
static int is_error(const char *at, const char *end) {
    static const char *const errors[] = {"ERROR", "CLIENT_ERROR", "SERVER_ERROR"};
    const char *line = line_end(at, end), *space = line ? memchr(at, ' ', line - at) : NULL;
    if (!line) return 0;
    if (space) line = space;
    if (line > at && line[-1] == ':') line--;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if ((size_t)(line - at) == strlen(errors[i]) && !memcmp(at, errors[i], line - at)) return 1;
    return 0;
}

static int are_digits(const char *at, const char *end) {
    if (at == end) return 0;
    while (at < end && *at >= '0' && *at <= '9') at++;
    return at == end;
}

/* Returns whether [at, end) is items with at least `least` words, for the keys in [keys, keys_end), in order, and `END` or an
error. */
static int are_items(const char *keys, const char *keys_end, const char *at, const char *end, int least) {
    while (end - at >= 6 && !memcmp(at, "VALUE ", 6)) {
        const char *line = line_end(at, end), *words[7] = {at};
        int known = 1;
        if (!line) return 0;
        for (const char *c = at; c < line && known < 6; c++) if (*c == ' ') words[known++] = c + 1;
        if (known < least || known > 5) return 0;
        words[known] = line + 1;
        for (int i = 2; i < known; i++) if (!are_digits(words[i], words[i + 1] - 1)) return 0;
        Py_ssize_t size = words[2] - 1 - words[1];
        for (;;) {
            const char *after = next_word(&keys, keys_end);
            if (keys == after) return 0;
            int same = after - keys == size && !memcmp(keys, words[1], size);
            keys = after;
            if (same) break;
        }
        long long length = number(words[3], words[4] - 1);
        if (length < 0 || length > end - line - 4) return 0;
        at = line + 4 + length;
    }
    return (end - at == END_SIZE && is_end(at, end)) || is_error(at, end);
}

/* Returns whether the words of a meta reply in [at, end) name the key and the opaque of a request, if they name any. */
static int is_of(const char *request, const char *request_end, const char *at, const char *end) {
    int encoded = 0;  /* a key may be encoded on one side only, or in another form */
    for (const char *word = at, *after; after = next_word(&word, end), word < after; word = after)
        if (after - word == 1 && *word == 'b') encoded = 1;
    for (const char *after; after = next_word(&at, end), at < after; at = after) {
        if (*at != 'k' && *at != 'O') continue;
        int same = 0, place = 0;
        const char *word = request, *word_end;
        for (; word_end = next_word(&word, request_end), word < word_end; word = word_end, place++) {
            if (place == 1 && *at == 'k') same = word_end - word == after - at - 1 && !memcmp(word, at + 1, word_end - word);
            if (*at == 'O' && word_end - word == after - at && !memcmp(word, at, after - at)) same = 1;
            if (word_end - word == 1 && *word == 'b') encoded = 1;
        }
        if (!same && (*at == 'O' || !encoded)) return 0;
    }
    return 1;
}

/* Returns whether a reply is a possible answer to a request, like `fits` in Python; -1 with an error. */
static int fits(const char *request, const char *request_end, const char *reply, const char *end) {
    const char *line = memchr(request, '\n', request_end - request), *reply_line = line_end(reply, end);
    if (line) request_end = line;
    if (request_end > request && request_end[-1] == '\r') request_end--;
    const char *verb = request, *after = next_word(&verb, request_end);
    PyObject *name = PyBytes_FromStringAndSize(verb, after - verb);
    PyObject *heads = name && expected ? PyDict_GetItemWithError(expected, name) : NULL;
    Py_XDECREF(name);
    if (!heads) return PyErr_Occurred() ? -1 : 1;
    if (is_error(reply, end)) return 1;
    int meta = after - verb == 2 && verb[0] == 'm' && verb[1] != 'e';
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(heads); i++) {
        const char *head = PyBytes_AS_STRING(PyTuple_GET_ITEM(heads, i));
        Py_ssize_t size = PyBytes_GET_SIZE(PyTuple_GET_ITEM(heads, i));
        if (!memcmp(head, "VALUE ", size < 6 ? (size_t)size : 6) && size > 6) {
            int least = 1;
            for (Py_ssize_t j = 0; j < size; j++) if (head[j] == ' ') least++;
            if (after - verb >= 3 && verb[1] == 'a') after = next_word(&after, request_end);
            return are_items(after, request_end, reply, end, least);
        }
        if (!reply_line) return 0;
        if (head[0] == '<') {
            const char *last = reply_line;
            while (last > reply && last[-1] == ' ') last--;
            if (are_digits(reply, last)) return 1;
            continue;
        }
        int open = head[size - 1] == ' ';
        if (open) size--;
        if (reply_line - reply < size || memcmp(reply, head, size)) continue;
        if (reply_line - reply == size) return 1;
        if (open && reply[size] == ' ') return !meta || is_of(request, request_end, reply + size, reply_line);
    }
    return 0;
}

typedef struct {
    PyObject_HEAD
    PyObject **entries;  /* a ring of bytes, or of tuples of bytes that lack the values */
    Py_ssize_t first, count, room, at;  /* `at` is the position of the next request in the first entry */
} Asked;

static PyTypeObject Asked_type;

#define MOST_KEPT 4096

/* Returns the end of the request at `at`. */
static const char *asked_end(const char *at, const char *end, int bare) {
    while (at < end && *at == ' ') at++;
    const char *line = at < end ? memchr(at, '\n', end - at) : NULL;
    if (!line) return end;
    int place;
    switch (*at) {
    case 's': case 'a': case 'r': case 'p': case 'c': place = 4; break;
    case 'm': place = at[1] == 's' ? 2 : 0; break;
    default: place = 0;
    }
    if (bare || !place) return line + 1;
    const char *last = line > at && line[-1] == '\r' ? line - 1 : line, *word = at, *after = at;
    for (int i = 0; i <= place; i++) {
        word = after;
        after = next_word(&word, last);
    }
    if (!are_digits(word, after)) return end;
    long long length = number(word, after);
    return length < 0 || length > end - line - 3 ? end : line + 3 + length;
}

/* Returns the lines of long requests without the values; see `_lines`. */
static PyObject *lines_of(PyObject *request) {
    const char *start = PyBytes_AS_STRING(request), *end = start + PyBytes_GET_SIZE(request);
    PyObject *kept = PyBytes_FromStringAndSize(NULL, end - start);
    if (!kept) return NULL;
    char *to = PyBytes_AS_STRING(kept);
    for (const char *at = start; at < end;) {
        const char *line = memchr(at, '\n', end - at), *after = line ? line + 1 : end;
        memcpy(to, at, after - at);
        to += after - at;
        at = asked_end(at, end, 0);
    }
    Py_ssize_t size = to - PyBytes_AS_STRING(kept);
    if (size == end - start) {
        Py_DECREF(kept);
        return Py_NewRef(request);
    }
    if (_PyBytes_Resize(&kept, size)) return NULL;
    return Py_BuildValue("(N)", kept);
}

static int asked_grow(Asked *self) {
    Py_ssize_t room = self->room ? self->room * 2 : 16;
    PyObject **entries = PyMem_New(PyObject *, room);
    if (!entries) return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < self->count; i++) entries[i] = self->entries[(self->first + i) & (self->room - 1)];
    PyMem_Free(self->entries);
    self->entries = entries;
    self->first = 0;
    self->room = room;
    return 0;
}

static inline int asked_add(Asked *self, PyObject *request) {
    if (self->count == self->room && asked_grow(self)) return -1;
    PyObject *entry = PyBytes_GET_SIZE(request) <= MOST_KEPT ? Py_NewRef(request) : lines_of(request);
    if (!entry) return -1;
    self->entries[(self->first + self->count++) & (self->room - 1)] = entry;
    return 0;
}

static inline void asked_skip(Asked *self) {
    self->at = 0;
    if (!self->count) return;
    PyObject *entry = self->entries[self->first];
    self->first = (self->first + 1) & (self->room - 1);
    self->count--;
    Py_DECREF(entry);
}

/* Returns the end of the get that begins at `at`, if an item in [reply, end) has its key; NULL otherwise. */
static inline const char *answered_get(const char *at, const char *last, const char *reply, const char *end) {
    const char *key = at + 4, *c = key;
    if (last - at < 7 || memcmp(at, "get ", 4)) return NULL;
    reply += 6;  /* "VALUE " */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    while (last - c >= 8 && end - reply >= 8) {
        unsigned long long one, other;
        memcpy(&one, c, 8);
        memcpy(&other, reply, 8);
        int same = one == other ? 8 : __builtin_ctzll(one ^ other) / 8;
        c += same;
        reply += same;
        if (same < 8) break;
    }
#endif
    while (c < last && reply < end && *c == *reply) c++, reply++;
    return c > key && last - c >= 2 && c[0] == '\r' && c[1] == '\n' && reply < end && *reply == ' ' ? c + 2 : NULL;
}

/* Returns whether a reply matches the next request, and removes that request if so; see `take`. -1 with an error. `usual` is
 * set if `usual_end` found nothing unusual in the reply. */
static inline int asked_take(Asked *self, const char *reply, const char *end, int usual, int more) {
    if (!self->count) return 1;
    PyObject *entry = self->entries[self->first];
    int bare = !PyBytes_CheckExact(entry), fit = 0;
    if (bare) entry = PyTuple_GET_ITEM(entry, 0);
    const char *start = PyBytes_AS_STRING(entry), *last = start + PyBytes_GET_SIZE(entry), *at = start + self->at, *after;
    if (usual && *reply == 'V' && reply[2] == 'L' && (after = answered_get(at, last, reply, end)) && (more || after == last)) fit = 1;
    else after = more || self->at ? asked_end(at, last, bare) : last;
    if (!fit && usual && after - at > 6)
        fit = *reply == 'E' ? reply[2] == 'D' && !memcmp(at, "get ", 4) : *reply == 'S' && !memcmp(at, "set ", 4);
    if (!fit && (fit = fits(at, after, reply, end)) < 1) return fit;
    if (more) self->at = after - start;
    else asked_skip(self);
    return 1;
}

static PyObject *asked_extend(Asked *self, PyObject *requests) {
    if (!PyList_Check(requests)) return PyErr_Format(PyExc_TypeError, "expected a list");
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(requests); i++) {
        PyObject *one = PyList_GET_ITEM(requests, i);
        if (!PyBytes_CheckExact(one)) return PyErr_Format(PyExc_TypeError, "requests must be bytes");
        if (asked_add(self, one)) return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *asked_take_reply(Asked *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyBytes_CheckExact(args[0])) return PyErr_Format(PyExc_TypeError, "expected bytes and a bool");
    const char *reply = PyBytes_AS_STRING(args[0]);
    int fit = asked_take(self, reply, reply + PyBytes_GET_SIZE(args[0]), 0, args[1] == Py_True);
    return fit < 0 ? NULL : PyBool_FromLong(fit);
}

static PyObject *asked_skip_one(Asked *self, PyObject *ignored) {
    asked_skip(self);
    Py_RETURN_NONE;
}

static PyObject *asked_clear(Asked *self, PyObject *ignored) {
    while (self->count) asked_skip(self);
    self->at = 0;
    Py_RETURN_NONE;
}

static void asked_dealloc(Asked *self) {
    while (self->count) asked_skip(self);
    PyMem_Free(self->entries);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef asked_methods[] = {
    {"extend", (PyCFunction)asked_extend, METH_O, "Record the requests sent."},
    {"take", (PyCFunction)(void (*)(void))asked_take_reply, METH_FASTCALL, "Return whether a reply fits the next request."},
    {"skip", (PyCFunction)asked_skip_one, METH_NOARGS, "Forget the requests of the next receiver."},
    {"clear", (PyCFunction)asked_clear, METH_NOARGS, "Forget everything."},
    {NULL},
};
static PyTypeObject Asked_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "memlite.proxy._native.Asked",
    .tp_basicsize = sizeof(Asked),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "The requests that a node was sent and has not answered.",
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)asked_dealloc,
    .tp_methods = asked_methods,
};

static PyObject *expect(PyObject *self, PyObject *table) {
    if (!PyDict_CheckExact(table)) return PyErr_Format(PyExc_TypeError, "expected a dictionary");
    PyObject *key, *heads;
    for (Py_ssize_t place = 0; PyDict_Next(table, &place, &key, &heads);) {
        if (!PyTuple_CheckExact(heads)) return PyErr_Format(PyExc_TypeError, "expected tuples");
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(heads); i++)
            if (!PyBytes_CheckExact(PyTuple_GET_ITEM(heads, i)) || !PyBytes_GET_SIZE(PyTuple_GET_ITEM(heads, i)))
                return PyErr_Format(PyExc_TypeError, "expected tuples of bytes");
    }
    Py_XSETREF(expected, Py_NewRef(table));
    Py_RETURN_NONE;
}
