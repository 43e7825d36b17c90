/* Requests of the usual kinds: the twin of recognizer.py. */

/* Where the set at `at` ends, whose line ends at `line`; its value has at most `most` bytes, all of which are there.
 * NULL if it is anything else. `key_end` is where its key ends. */
static const char *set_end(const char *at, const char *line, const char *end, long most, const char **key_end) {
    const char *words[5];
    int known = 1;
    /* A known key may have a line feed, which ends a line for nodes. */
    if (line - at < 4 || memcmp(at, "set ", 4) || memchr(at, '\n', line - at)) return NULL;
    words[0] = at + 4;
    for (const char *c = at + 4; c < line; c++) {
        if (*c != ' ') continue;
        if (known > 3) return NULL;
        words[known++] = c + 1;
    }
    if (known != 4) return NULL;
    long length = small_number(words[3], line);
    if (length < 0 || length > most || length > end - line - 4
        || small_number(words[1], words[2] - 1) < 0 || small_number(words[2], words[3] - 1) < 0) return NULL;
    const char *after = line + 4 + length;
    *key_end = words[1] - 1;
    return after[-2] == '\r' && after[-1] == '\n' ? after : NULL;
}

/* The key of a change that is one line, is complete, and has one reply: where it ends is `key_end`. NULL for anything else. */
static const char *changed_key(const char *at, const char *end, const char **key_end) {
    static const struct { const char *name; int size, number; } kinds[] = {
        {"delete ", 7, 0}, {"incr ", 5, 1}, {"decr ", 5, 1}, {"touch ", 6, 1}};
    if (end - at < 9 || end[-2] != '\r' || end[-1] != '\n') return NULL;
    end -= 2;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (*at != *kinds[i].name || end - at <= kinds[i].size || memcmp(at, kinds[i].name, kinds[i].size)) continue;
        const char *key = at + kinds[i].size, *space = memchr(key, ' ', end - key);
        /* A known key may have a line feed, which ends a line for nodes. */
        if (!space != !kinds[i].number || memchr(key, '\n', end - key)) return NULL;
        if (space && small_number(space + 1, end) < 0) return NULL;
        *key_end = space ? space : end;
        Py_ssize_t size = *key_end - key;
        if ((size == 7 && !memcmp(key, "noreply", 7)) || (size == 25 && !memcmp(key, "AmazonElastiCache:cluster", 25))) return NULL;
        return key;
    }
    return NULL;
}
