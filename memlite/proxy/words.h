/* Lines and words of requests and replies. */

#define LENGTH_DIGITS 19

/* Returns the first "\r\n" in [at, end), or NULL. */
static const char *line_end(const char *at, const char *end) {
    while (at < end && (at = memchr(at, '\r', end - at))) {
        if (at + 1 < end && at[1] == '\n') return at;
        at++;
    }
    return NULL;
}

/* Returns the number in [at, end), or -1: digits only, few enough that it cannot overflow. */
static long long number(const char *at, const char *end) {
    if (at == end || end - at > LENGTH_DIGITS) return -1;
    unsigned long long found = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9') return -1;
        found = found * 10 + (unsigned)(*at - '0');
    }
    return found > LLONG_MAX ? LLONG_MAX : (long long)found;
}

/* Returns the number in [at, end) if it is in canonical form with at most four digits; else -1. */
static long small_number(const char *at, const char *end) {
    if (end - at > 4 || (end - at > 1 && *at == '0')) return -1;
    return (long)number(at, end);
}

static PyObject *piece(PyObject *data, Py_ssize_t from, Py_ssize_t to) {
    if (!from && to == PyBytes_GET_SIZE(data)) return Py_NewRef(data);
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + from, to - from);
}
