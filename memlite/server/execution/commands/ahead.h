/* Finds the keys of the next commands, so that their items can be prefetched. */

/* Finds keys of the next commands of the text protocol, at most `most` commands. `at` points to the
start of a command or, with `in_get`, of a key of a get or gat; `looked` is set to where the search
ended. */
static int find_keys(Word *keys, const char *at, const char *end, Py_ssize_t most, int in_get, const char **looked) {
    int count = 0;
    for (; most > 0 && at < end && count < AHEAD; most--) {
        int words = 0;  /* after the key, up to the size of a value */
        if (!in_get) {
            const char *name = at;
            at = word_end(at, end);
            if (at - name < 2) break;
            if (name[0] == 'g') in_get = name[1] == 'e';
            else if (name[0] == 'm') words = name[1] == 's';
            else if (strchr("sarpc", name[0])) words = 3;
            if (name[0] == 'g' && !in_get && at < end) {  /* the exptime of a gat */
                at = word_end(at + 1, end);
                in_get = 1;
            }
            if (at < end) at++;
        }
        for (;; at++) {
            const char *key = at;
            at = word_end(at, end);
            if (at > key && at - key <= LONGEST_KEY) keys[count++] = (Word){key, at - key};
            if (!in_get || count == AHEAD || at == end || *at != ' ') break;
        }
        in_get = 0;
        Py_ssize_t size = 0;
        if (words) {
            while (--words && at < end) at = word_end(at + 1, end);
            if (at < end) at++;
            for (; at < end && size < LARGE && *at >= '0' && *at <= '9'; at++) size = 10 * size + *at - '0';
            size += 2;
        }
        const char *newline = memchr(at, '\n', end - at);
        if (!newline || end - newline - 1 < size) break;
        at = newline + 1 + size;
    }
    *looked = at;
    return count;
}

static Py_ssize_t body_of(const unsigned char *head) {
    return (Py_ssize_t)head[8] << 24 | head[9] << 16 | head[10] << 8 | head[11];
}

static int find_packet_keys(Word *keys, const char *at, const char *end, Py_ssize_t most, const char **looked) {
    int count = 0;
    for (; most > 0 && count < AHEAD && end - at >= HEADER; most--) {
        const unsigned char *head = (const unsigned char *)at;
        Py_ssize_t size = head[2] << 8 | head[3], extras = head[4], body = body_of(head);
        at += HEADER;
        if (body > end - at || extras + size > body) break;
        if (size > 0 && size <= LONGEST_KEY) keys[count++] = (Word){at + extras, size};
        at += body;
    }
    *looked = at;
    return count;
}

/* Whether there may be more than one command: cheap in the usual case of a single one. */
static int may_be_several(const char *at, const char *end, int binary) {
    if (binary) return end - at > HEADER && end - at - HEADER > body_of((const unsigned char *)at);
    const char *newline = memchr(at, '\n', end - at - 1);
    if (!newline || !(strchr("sarpc", *at) || (*at == 'm' && at[1] == 's'))) return newline != NULL;
    Py_ssize_t size = 0, unit = 1;  /* of the value; digits are read backwards */
    for (const char *digit = newline - 2; unit < LARGE && digit > at && *digit >= '0' && *digit <= '9'; digit--, unit *= 10)
        size += unit * (*digit - '0');
    return end - newline > size + 3;
}
