/* The nodes of keys: KnownNodes in known_nodes.py. */

enum { MOST_REMEMBERED = 32768, LONGEST_KEY = 250 };

static PyObject *s_find;

/* Returns whether a word is the key of the list of nodes, or an option. */
static int is_special(const char *word, Py_ssize_t size) {
    static const char cluster[] = "AmazonElastiCache:cluster", option[] = "noreply";
    return (size == sizeof cluster - 1 && !memcmp(word, cluster, size)) || (size == sizeof option - 1 && !memcmp(word, option, size));
}

/* Returns whether a word is an ordinary key. A line feed ends a line for nodes. */
static int is_ordinary(const char *key, Py_ssize_t size) {
    return size > 0 && size <= LONGEST_KEY && !memchr(key, '\n', size) && !memchr(key, '\0', size) && !is_special(key, size);
}

/* Sets an item of a table that is emptied once it is full; returns 0 or -1. */
static int remember(PyObject *table, PyObject *key, PyObject *node) {
    if (PyDict_GET_SIZE(table) >= MOST_REMEMBERED) PyDict_Clear(table);
    return PyDict_SetItem(table, key, node);
}

/* Returns the node of a key as a borrowed reference, which is valid as long as the topology; NULL if there is none, or with an
 * error. A node that is not known is found and remembered, unless `nodes` is a dictionary of another type. */
static PyObject *node_of(const char *from, Py_ssize_t size, PyObject *nodes) {
    PyObject *key = PyBytes_FromStringAndSize(from, size), *node = key ? PyDict_GetItemWithError(nodes, key) : NULL;
    if (!node && key && !PyErr_Occurred() && !PyDict_CheckExact(nodes) && is_ordinary(from, size)) {
        node = PyObject_CallMethodOneArg(nodes, s_find, key);
        int failed = node && node != Py_None && remember(nodes, key, node);
        Py_XDECREF(node);
        if (failed || node == Py_None) node = NULL;
    }
    Py_XDECREF(key);
    return node;
}

/* Returns the key of a line that gets one key, and sets its size; NULL for anything else. */
static const char *key_of_get(const char *line, Py_ssize_t size, Py_ssize_t *key_size) {
    enum { NAME = 4, LINE_END = 2 };
    if (size <= NAME + LINE_END || memcmp(line, "get ", NAME) || memcmp(line + size - LINE_END, "\r\n", LINE_END)) return NULL;
    *key_size = size - NAME - LINE_END;
    return memchr(line + NAME, ' ', *key_size) ? NULL : line + NAME;
}

/* Does the same as `node_of` for a get of one key; only lines are known if `nodes` is not a dictionary. If its key was known,
 * its line is remembered: that saves little, and not for keys that are requested once only. */
static PyObject *node_of_line(PyObject *line, PyObject *by_line, PyObject *nodes) {
    PyObject *node = PyDict_GetItemWithError(by_line, line);
    if (node || PyErr_Occurred() || !nodes || !PyDict_Check(nodes)) return node;
    Py_ssize_t size;
    const char *key = key_of_get(PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line), &size);
    Py_ssize_t before = PyDict_GET_SIZE(nodes);
    /* The key of the list of nodes may be known, and one with a line feed, by other commands. */
    if (!key || !is_ordinary(key, size) || !(node = node_of(key, size, nodes))) return NULL;
    if (PyDict_GET_SIZE(nodes) != before) return node;
    return remember(by_line, line, node) ? NULL : node;
}

static PyObject *node_of_get(const char *from, Py_ssize_t size, PyObject *by_line, PyObject *nodes) {
    PyObject *line = PyBytes_FromStringAndSize(from, size), *node = line ? node_of_line(line, by_line, nodes) : NULL;
    Py_XDECREF(line);
    return node;
}
