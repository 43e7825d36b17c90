/* Bytes of requests and replies, taken apart and put together: the twin of framing.py.

Each function does what the one of the same name there does, which says more; tests compare them. None
keeps anything, none writes to what it is given. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#define VERSION 1  /* of the functions: what was compiled for another is not used */
#define LENGTH_DIGITS 19
#define MOST_OWNERS 64

static const char END[] = "END\r\n";
#define END_SIZE ((Py_ssize_t)sizeof END - 1)

/* The first "\r\n" in [at, end), or NULL. */
static const char *line_end(const char *at, const char *end) {
    while (at < end && (at = memchr(at, '\r', end - at))) {
        if (at + 1 < end && at[1] == '\n') return at;
        at++;
    }
    return NULL;
}

/* The number that [at, end) is, or -1: digits alone, so many that it cannot overflow. */
static long long number(const char *at, const char *end) {
    if (at == end || end - at > LENGTH_DIGITS) return -1;
    unsigned long long found = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9') return -1;
        found = found * 10 + (unsigned)(*at - '0');
    }
    return found > LLONG_MAX ? LLONG_MAX : (long long)found;
}

static int is_end(const char *at, const char *end) {
    return end - at >= END_SIZE && !memcmp(at, END, END_SIZE);
}

/* Where the item at `at` ends, which `END` must follow; NULL if there is anything else. */
static const char *get_end(const char *at, const char *end) {
    const char *line = *at == 'V' ? line_end(at, end) : NULL, *word = at;
    if (!line) return NULL;
    int spaces = 0;
    for (const char *c = at; c < line; c++) if (*c == ' ') { spaces++; word = c + 1; }
    long long length = spaces == 3 ? number(word, line) : -1;
    if (length < 0 || length > end - line - 4) return NULL;
    const char *after = line + 4 + length;
    return after[-1] == '\n' && is_end(after, end) ? after : NULL;
}

static PyObject *split_gets(PyObject *self, PyObject *data) {
    if (!PyBytes_Check(data)) return PyErr_Format(PyExc_TypeError, "bytes are needed");
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

/* Where the item at `at` ends, whose header `line` ends; NULL if it is none, or not all of it is there. */
static const char *item_end(const char *at, const char *line, const char *end) {
    const char *words[6] = {at};
    int known = 1;  /* of them, and then one past the last */
    for (const char *c = at; c < line && known < 6; c++) if (*c == ' ') words[known++] = c + 1;
    if (known < 4 || known > 5) return NULL;
    words[known] = line + 1;
    long long length = number(words[3], words[4] - 1);
    if (length < 0 || length > end - line - 4) return NULL;
    const char *after = line + 4 + length;
    return after[-2] == '\r' && after[-1] == '\n' ? after : NULL;
}

static PyObject *items(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t position = count == 3 ? PyLong_AsSsize_t(args[2]) : -1;
    if (count != 3 || !PyList_Check(args[0]) || !PyBytes_Check(args[1])
        || position < 0 || position > PyBytes_GET_SIZE(args[1]))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "a list, bytes and a position are needed");
    const char *start = PyBytes_AS_STRING(args[1]), *end = start + PyBytes_GET_SIZE(args[1]), *at = start + position;
    Py_ssize_t size = PyList_GET_SIZE(args[0]);
    PyObject *found = PyList_New(size);
    if (!found) return NULL;
    int over = 0;  /* what follows is no whole item */
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *key = PyList_GET_ITEM(args[0], i);
        if (!PyBytes_Check(key)) {
            Py_DECREF(found);
            return PyErr_Format(PyExc_TypeError, "keys are bytes");
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
        return PyErr_Format(PyExc_ValueError, "two lists of the same length are needed");
    PyObject *owners[MOST_OWNERS], *lists[MOST_OWNERS];  /* of the first ones, without references */
    int known = 0;
    PyObject *found = PyDict_New();
    for (Py_ssize_t i = 0; found && i < PyList_GET_SIZE(args[0]); i++) {
        PyObject *owner = PyList_GET_ITEM(args[0], i), *list;
        int at = 0;
        while (at < known && owners[at] != owner) at++;
        list = at < known ? lists[at] : PyDict_GetItemWithError(found, owner);
        if (!list && !PyErr_Occurred() && (list = PyList_New(0))) {
            int failed = PyDict_SetItem(found, owner, list);
            Py_DECREF(list);  /* the dictionary has it */
            if (failed) list = NULL;
            else if (known < MOST_OWNERS) { owners[known] = owner; lists[known++] = list; }
        }
        if (!list || PyList_Append(list, PyList_GET_ITEM(args[1], i))) Py_CLEAR(found);
    }
    return found;
}

static PyObject *interleave(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 4 || !PyList_Check(args[0]) || !PyDict_Check(args[1]) || !PyBytes_Check(args[2]) || !PyBytes_Check(args[3]))
        return PyErr_Format(PyExc_TypeError, "a list, a dictionary and twice bytes are needed");
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
            PyErr_SetString(PyExc_TypeError, "values are lists");
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

static PyMethodDef methods[] = {
    {"split_gets", (PyCFunction)split_gets, METH_O, "The replies to gets, and where they end."},
    {"items", (PyCFunction)(void (*)(void))items, METH_FASTCALL, "The items of a reply, and where they end."},
    {"gather", (PyCFunction)(void (*)(void))gather, METH_FASTCALL, "Values by their owners."},
    {"interleave", (PyCFunction)(void (*)(void))interleave, METH_FASTCALL, "Pieces in the order of their owners."},
    {NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "Framing in C.", -1, methods};
PyMODINIT_FUNC PyInit__native(void) {
    PyObject *m = PyModule_Create(&module);
    PyObject *names = m ? Py_BuildValue("[sssss]", "VERSION", "gather", "interleave", "items", "split_gets") : NULL;
    if (!names || PyModule_AddObjectRef(m, "__all__", names) || PyModule_AddIntMacro(m, VERSION)) Py_CLEAR(m);
    Py_XDECREF(names);
    return m;
}
