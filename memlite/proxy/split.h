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

/* Puts the requests for each node into `copies`, as bytes; returns 0, or -1 with none of them. */
static int copy_requests(PyObject *data, Requests *r, PyObject **copies) {
    for (int i = 0; i < r->known; i++) {
        if (!(copies[i] = PyBytes_FromStringAndSize(NULL, r->shares[i].size))) {
            while (i--) Py_DECREF(copies[i]);
            return -1;
        }
        r->shares[i].to = PyBytes_AS_STRING(copies[i]);
    }
    copy_to_shares(data, r);
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

static PyObject *split_keys(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3 || !PyBytes_CheckExact(args[0]) || !PyDict_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "expected bytes, a dictionary and a type");
    const char *start = PyBytes_AS_STRING(args[0]), *end = start + PyBytes_GET_SIZE(args[0]) - 2, *at;
    if (end - start < 5 || memcmp(start, "get ", 4) || end[0] != '\r' || end[1] != '\n') Py_RETURN_NONE;
    Py_ssize_t number = 1, i = 0;
    for (at = start + 4; at < end; at++) if (*at == ' ') number++;
    PyObject *order = PyBytes_FromStringAndSize(NULL, number), *found = NULL;
    if (!order) return NULL;
    unsigned char *shared = (unsigned char *)PyBytes_AS_STRING(order);
    Share shares[MOST_OWNERS];
    int known = 0;
    for (at = start + 4, i = 0; i < number; i++) {
        const char *next = at < end ? memchr(at, ' ', end - at) : NULL;
        if (!next) next = end;
        PyObject *node = node_of(at, next - at, args[1]);
        if (!node && PyErr_Occurred()) goto failed;
        int share = node && (PyObject *)Py_TYPE(node) == args[2] ? share_of(shares, &known, node) : -1;
        if (share < 0) {
            Py_DECREF(order);
            Py_RETURN_NONE;
        }
        shares[share].count++;
        shares[share].size += next - at + 1;
        shared[i] = (unsigned char)share;
        at = next + 1;
    }
    if (!(found = of_shares(shares, known, 5))) goto failed;  /* "get" and the end of the line */
    for (int one = 0; one < known; one++) {
        memcpy(shares[one].to, "get", 3);
        memcpy(shares[one].to + shares[one].size + 3, "\r\n", 2);
        shares[one].to += 3;
    }
    for (at = start + 4, i = 0; i < number; i++) {
        const char *next = at < end ? memchr(at, ' ', end - at) : NULL;
        if (!next) next = end;
        Share *share = &shares[shared[i]];
        *share->to++ = ' ';
        memcpy(share->to, at, next - at);
        share->to += next - at;
        at = next + 1;
    }
    return Py_BuildValue("(NN)", found, order);
failed:
    Py_DECREF(order);
    return NULL;
}
