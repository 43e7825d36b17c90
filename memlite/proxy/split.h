/* Splitting of requests and keys by node: executor.py. */

#define FEW 64  /* maximum requests at once */

/* The requests for one node. */
typedef struct { PyObject *node; Py_ssize_t count, size; char *to; } Share;

static int share_of(Share *shares, int *known, PyObject *node) {
    int at = 0;
    while (at < *known && shares[at].node != node) at++;
    if (at == *known) {
        if (at == MOST_OWNERS) return -1;
        shares[(*known)++] = (Share){node, 0, 0, NULL};
    }
    return at;
}

/* Returns a list with each node, bytes for its requests, with `extra` bytes in addition, and the number of its requests. */
static PyObject *of_shares(Share *shares, int known, Py_ssize_t extra) {
    PyObject *found = PyList_New(known);
    for (int i = 0; found && i < known; i++) {
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, shares[i].size + extra);
        PyObject *one = bytes ? Py_BuildValue("(ONn)", shares[i].node, bytes, shares[i].count) : NULL;
        if (!one) Py_CLEAR(found);
        else {
            shares[i].to = PyBytes_AS_STRING(bytes);
            PyList_SET_ITEM(found, i, one);
        }
    }
    return found;
}

/* The known gets and small sets at the beginning of the input. */
typedef struct {
    Share shares[MOST_OWNERS];
    unsigned char order[FEW];  /* the share of each request */
    Py_ssize_t froms[FEW], number, end;  /* where each begins, the number of requests, and where the last ends */
    int known, reads;  /* the number of shares, and whether the requests change nothing */
} Requests;

static int find_requests(PyObject *data, PyObject *by_line, PyObject *nodes, Py_ssize_t most, long safe, PyObject *kind, Requests *r) {
    const char *start = PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data), *at = start;
    r->number = r->known = 0;
    r->reads = 1;
    while (at < end && r->number < most) {
        PyObject *node;
        const char *line = line_end(at, end), *after = line ? line + 2 : NULL;
        if (!line) break;
        int gets = *at == 'g' && after - at <= 256 + 8;
        if (gets) node = node_of_get(at, after - at, by_line, nodes);
        else {
            const char *name = NULL, *word = NULL;
            if (!(after = stored_end(at, line, end, safe, 0, &name, &word))) break;
            node = node_of(name, word - name, nodes);
        }
        if (!node && PyErr_Occurred()) return -1;
        if (!node || (PyObject *)Py_TYPE(node) != kind) break;
        int share = share_of(r->shares, &r->known, node);
        if (share < 0) break;
        if (!gets) r->reads = 0;
        r->shares[share].count++;
        r->shares[share].size += after - at;
        r->order[r->number] = (unsigned char)share;
        r->froms[r->number++] = at - start;
        at = after;
    }
    r->end = at - start;
    return 0;
}

/* Copies each request to the position in its share. */
static void copy_to_shares(PyObject *data, Requests *r) {
    for (Py_ssize_t i = 0; i < r->number; i++) {
        Share *share = &r->shares[r->order[i]];
        Py_ssize_t from = r->froms[i], size = (i + 1 < r->number ? r->froms[i + 1] : r->end) - from;
        memcpy(share->to, PyBytes_AS_STRING(data) + from, size);
        share->to += size;
    }
}

/* Creates the bytes for each share, with `extra` bytes in addition; returns 0, or -1 with none of them. */
static int new_copies(Share *shares, int known, Py_ssize_t extra, PyObject **copies) {
    for (int i = 0; i < known; i++) {
        if (!(copies[i] = PyBytes_FromStringAndSize(NULL, shares[i].size + extra))) {
            while (i--) Py_DECREF(copies[i]);
            return -1;
        }
        shares[i].to = PyBytes_AS_STRING(copies[i]);
    }
    return 0;
}

static PyObject *split(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t most = count == 6 ? PyLong_AsSsize_t(args[3]) : -1;
    long safe = count == 6 ? PyLong_AsLong(args[4]) : -1;
    Requests r;
    if (PyErr_Occurred()) return NULL;
    if (count != 6 || !PyBytes_CheckExact(args[0]) || !PyDict_Check(args[1]) || !PyDict_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "expected bytes, two dictionaries, two numbers and a type");
    if (find_requests(args[0], args[1], args[2], most > FEW ? FEW : most, safe, args[5], &r)) return NULL;
    if (r.number < 2) Py_RETURN_NONE;
    PyObject *found = of_shares(r.shares, r.known, 0);
    if (!found) return NULL;
    copy_to_shares(args[0], &r);
    return Py_BuildValue("(Ny#nO)", found, (char *)r.order, r.number, r.end, r.reads ? Py_True : Py_False);
}

#define GET_EXTRA 5  /* of a get of several keys: "get", and the end of the line */

/* The keys of a get of several. */
typedef struct {
    Share shares[MOST_OWNERS];  /* the size includes a space before each key */
    PyObject *order;  /* the share of each key */
    int known;
} Keys;

/* Returns the end of the key at `at`. */
static const char *key_end(const char *at, const char *end) {
    const char *space = at < end ? memchr(at, ' ', end - at) : NULL;
    return space ? space : end;
}

/* Finds the nodes of the keys of a get that is the whole input; returns 0 if it is not one, or if a key is not ordinary; -1 with an
 * error. */
static int find_keys(PyObject *data, PyObject *nodes, PyObject *kind, Keys *k) {
    const char *start = PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data) - 2, *at;
    if (end - start < 5 || memcmp(start, "get ", 4) || end[0] != '\r' || end[1] != '\n') return 0;
    Py_ssize_t number = 1;
    for (at = start + 4; at < end; at++) if (*at == ' ') number++;
    if (!(k->order = PyBytes_FromStringAndSize(NULL, number))) return -1;
    unsigned char *order = (unsigned char *)PyBytes_AS_STRING(k->order);
    k->known = 0;
    at = start + 4;
    for (Py_ssize_t i = 0; i < number; i++) {
        const char *next = key_end(at, end);
        PyObject *node = node_of(at, next - at, nodes);
        int share = node && (PyObject *)Py_TYPE(node) == kind ? share_of(k->shares, &k->known, node) : -1;
        if (share < 0) {
            Py_DECREF(k->order);
            return PyErr_Occurred() ? -1 : 0;
        }
        k->shares[share].count++;
        k->shares[share].size += next - at + 1;
        order[i] = (unsigned char)share;
        at = next + 1;
    }
    return 1;
}

/* Writes the request for each share, of whose size `GET_EXTRA` must be added, to its position. */
static void write_gets(PyObject *data, Keys *k) {
    const char *at = PyBytes_AS_STRING(data) + 4, *end = PyBytes_AS_STRING(data) + PyBytes_GET_SIZE(data) - 2;
    const unsigned char *order = (const unsigned char *)PyBytes_AS_STRING(k->order);
    for (int i = 0; i < k->known; i++) {
        Share *share = &k->shares[i];
        memcpy(share->to, "get", 3);
        share->to += 3;
        memcpy(share->to + share->size, "\r\n", 2);
    }
    for (Py_ssize_t i = 0; i < PyBytes_GET_SIZE(k->order); i++) {
        const char *next = key_end(at, end);
        Share *share = &k->shares[order[i]];
        *share->to++ = ' ';
        memcpy(share->to, at, next - at);
        share->to += next - at;
        at = next + 1;
    }
}

static PyObject *split_keys(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Keys keys;
    if (count != 3 || !PyBytes_CheckExact(args[0]) || !PyDict_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "expected bytes, a dictionary and a type");
    int are = find_keys(args[0], args[1], args[2], &keys);
    if (are < 0) return NULL;
    if (!are) Py_RETURN_NONE;
    PyObject *found = of_shares(keys.shares, keys.known, GET_EXTRA);
    if (found) write_gets(args[0], &keys);
    else Py_DECREF(keys.order);
    return found ? Py_BuildValue("(NN)", found, keys.order) : NULL;
}
