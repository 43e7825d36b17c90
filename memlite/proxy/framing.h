/* Splitting and joining of replies: the counterpart of framing.py. */

#define MOST_OWNERS 64

static PyObject *split_gets(PyObject *self, PyObject *data) {
    if (!PyBytes_Check(data)) return PyErr_Format(PyExc_TypeError, "expected bytes");
    const char *start = PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data), *at = start;
    PyObject *found = PyList_New(0);
    while (found && at < end) {
        const char *after = is_end(at, end) ? at : get_end(at, end);
        if (!after) break;
        PyObject *one = PyBytes_FromStringAndSize(at, after - at);
        if (!one || PyList_Append(found, one)) Py_CLEAR(found);
        Py_XDECREF(one);
        at = after + END_SIZE;
    }
    if (!found) return NULL;
    return Py_BuildValue("(Nn)", found, (Py_ssize_t)(at - start));
}

static PyObject *items(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t position = count == 3 ? PyLong_AsSsize_t(args[2]) : -1;
    if (count != 3 || !PyList_Check(args[0]) || !PyBytes_Check(args[1])
        || position < 0 || position > PyBytes_GET_SIZE(args[1]))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a list, bytes and a position");
    const char *start = PyBytes_AS_STRING(args[1]), *end = start + PyBytes_GET_SIZE(args[1]), *at = start + position;
    Py_ssize_t size = PyList_GET_SIZE(args[0]);
    PyObject *found = PyList_New(size);
    if (!found) return NULL;
    int over = 0;  /* whether no complete item follows */
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *key = PyList_GET_ITEM(args[0], i);
        if (!PyBytes_Check(key)) {
            Py_DECREF(found);
            return PyErr_Format(PyExc_TypeError, "keys must be bytes");
        }
        Py_ssize_t length = PyBytes_GET_SIZE(key);
        const char *after = at, *name = at + 6;
        if (!over && end - at > 6 + length && !memcmp(at, "VALUE ", 6)
            && !memcmp(name, PyBytes_AS_STRING(key), length) && name[length] == ' ') {
            const char *line = line_end(at, end);
            after = line ? item_end(at, line, end) : NULL;
            if (!after) { over = 1; after = at; }
        }
        PyObject *item = PyBytes_FromStringAndSize(at, after - at);
        if (!item) {
            Py_DECREF(found);
            return NULL;
        }
        PyList_SET_ITEM(found, i, item);
        at = after;
    }
    return Py_BuildValue("(Nn)", found, (Py_ssize_t)(at - start));
}

static PyObject *gather(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyList_Check(args[0]) || !PyList_Check(args[1])
        || PyList_GET_SIZE(args[0]) != PyList_GET_SIZE(args[1]))
        return PyErr_Format(PyExc_ValueError, "expected two lists of the same length");
    PyObject *owners[MOST_OWNERS], *lists[MOST_OWNERS];  /* the first owners and their lists, borrowed */
    int known = 0;
    PyObject *found = PyDict_New();
    for (Py_ssize_t i = 0; found && i < PyList_GET_SIZE(args[0]); i++) {
        PyObject *owner = PyList_GET_ITEM(args[0], i), *list;
        int at = 0;
        while (at < known && owners[at] != owner) at++;
        list = at < known ? lists[at] : PyDict_GetItemWithError(found, owner);
        if (!list && !PyErr_Occurred() && (list = PyList_New(0))) {
            int failed = PyDict_SetItem(found, owner, list);
            Py_DECREF(list);  /* the dictionary holds a reference */
            if (failed) list = NULL;
            else if (known < MOST_OWNERS) { owners[known] = owner; lists[known++] = list; }
        }
        if (!list || PyList_Append(list, PyList_GET_ITEM(args[1], i))) Py_CLEAR(found);
    }
    return found;
}

static PyObject *interleave(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 4 || !PyList_Check(args[0]) || !PyDict_Check(args[1]) || !PyBytes_Check(args[2]) || !PyBytes_Check(args[3]))
        return PyErr_Format(PyExc_TypeError, "expected a list, a dictionary and two bytes objects");
    Py_ssize_t parts = PyDict_GET_SIZE(args[1]), number = PyList_GET_SIZE(args[0]), place = 0, total = PyBytes_GET_SIZE(args[3]);
    struct Part { PyObject *owner, *list; Py_ssize_t next; } few[MOST_OWNERS], *all = few;
    const char *each = PyBytes_AS_STRING(args[2]);
    Py_ssize_t each_size = PyBytes_GET_SIZE(args[2]);
    PyObject *owner, *list, *result = NULL;
    PyObject *short_pieces[MOST_OWNERS], **pieces = short_pieces;
    if (parts > MOST_OWNERS && !(all = PyMem_New(struct Part, parts))) return PyErr_NoMemory();
    if (number > MOST_OWNERS && !(pieces = PyMem_New(PyObject *, number))) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; PyDict_Next(args[1], &place, &owner, &list); i++) {
        if (!PyList_Check(list)) {
            PyErr_SetString(PyExc_TypeError, "values must be lists");
            goto done;
        }
        all[i] = (struct Part){owner, list, 0};
    }
    for (Py_ssize_t i = 0; i < number; i++) {
        PyObject *wanted = PyList_GET_ITEM(args[0], i), *piece = NULL;
        Py_ssize_t at = 0;
        while (at < parts && all[at].owner != wanted) at++;
        if (at < parts && all[at].next < PyList_GET_SIZE(all[at].list)) piece = PyList_GET_ITEM(all[at].list, all[at].next++);
        if (!piece || !PyBytes_Check(piece)) {
            PyErr_SetString(PyExc_ValueError, "there are too few pieces, or they are not bytes");
            goto done;
        }
        pieces[i] = piece;
        total += PyBytes_GET_SIZE(piece) + each_size;
    }
    result = PyBytes_FromStringAndSize(NULL, total);
    if (!result) goto done;
    char *to = PyBytes_AS_STRING(result);
    for (Py_ssize_t i = 0; i < number; i++) {
        Py_ssize_t size = PyBytes_GET_SIZE(pieces[i]);
        memcpy(to, PyBytes_AS_STRING(pieces[i]), size);
        memcpy(to + size, each, each_size);
        to += size + each_size;
    }
    memcpy(to, PyBytes_AS_STRING(args[3]), PyBytes_GET_SIZE(args[3]));
done:
    if (all != few) PyMem_Free(all);
    if (pieces != short_pieces) PyMem_Free(pieces);
    return result;
}
