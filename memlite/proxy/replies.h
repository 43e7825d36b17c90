/* Finding the ends of replies: the counterpart of merge.py, and of the client's scanner.py. */

static const char END[] = "END\r\n";
#define END_SIZE ((Py_ssize_t)sizeof END - 1)

static int is_end(const char *at, const char *end) {
    return end - at >= END_SIZE && !memcmp(at, END, END_SIZE);
}

/* Returns the end of the item at `at`, which `END` must follow; NULL for anything else. */
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

/* Returns the end of the item at `at`, whose header ends at `line`; NULL if it is not an item, or incomplete. */
static const char *item_end(const char *at, const char *line, const char *end) {
    const char *words[6] = {at};
    int known = 1;  /* the number of words; words[known] is one past the last */
    for (const char *c = at; c < line && known < 6; c++) if (*c == ' ') words[known++] = c + 1;
    if (known < 4 || known > 5) return NULL;
    words[known] = line + 1;
    long long length = number(words[3], words[4] - 1);
    if (length < 0 || length > end - line - 4) return NULL;
    const char *after = line + 4 + length;
    return after[-2] == '\r' && after[-1] == '\n' ? after : NULL;
}

/* Returns the end of the item at `at`, which begins with "VALUE "; NULL if it is not an item, or incomplete. Sets `odd` unless
 * it has the usual four words. */
static const char *value_end(const char *at, const char *end, int *odd) {
    const char *key = at + 6, *c = memchr(key, ' ', end - key), *digits;
    if (c && !memchr(key, '\n', c - key)) {  /* the usual case: a key, two numbers, and nothing else */
        for (digits = ++c; c < end && *c >= '0' && *c <= '9';) c++;
        if (c > digits && end - c > 12 && *c == ' ') {
            long length = 0;
            for (digits = ++c; *c >= '0' && *c <= '9' && c - digits < 9; c++) length = length * 10 + (*c - '0');
            if (c > digits && c[0] == '\r' && c[1] == '\n') {
                if (length > end - c - 4) return NULL;
                c += length + 4;
                return c[-2] == '\r' && c[-1] == '\n' ? c : NULL;
            }
        }
    }
    *odd = 1;
    const char *line = line_end(at, end);
    return line && line - at >= 6 ? item_end(at, line, end) : NULL;
}

#define LONGEST_LINE 256  /* of usual replies, in bytes; longer lines are left to the scanner */

/* Returns the end of a reply that is one line, or a value of the meta protocol: the replies to changes and meta gets. NULL for
 * anything else, and for replies that the scanner has to check. */
static const char *change_end(const char *at, const char *end) {
    const char *line;
    switch (*at) {
    case 'D': case 'N': case 'T': case 'H': case 'O': break;
    case 'E':
        if (end - at < 4 || (at[1] != 'X' && memcmp(at, "EN\r\n", 4))) return NULL;
        break;
    case 'V':
        if (end - at < 3 || at[1] != 'A' || at[2] != ' ') return NULL;
        break;
    default:
        if (*at < '0' || *at > '9') return NULL;
    }
    if (!(line = line_end(at, end - at > LONGEST_LINE ? at + LONGEST_LINE : end))) return NULL;
    if (*at != 'V') return line + 2;
    const char *word = memchr(at + 3, ' ', line - at - 3);
    long long length = number(at + 3, word ? word : line);
    if (length < 0 || length > end - line - 4) return NULL;
    at = line + 4 + length;
    return at[-2] == '\r' && at[-1] == '\n' ? at : NULL;
}

/* Returns the end of a reply of the usual kinds, or NULL. Sets `odd` if it may be the reply to a retrieval with more than one
 * item, or with an unusual item. */
static const char *usual_end(const char *at, const char *end, int *odd) {
    if (end - at > 2 && memcmp(at, "VAL", 3) && memcmp(at, "END", 3) && *at != 'S') return change_end(at, end);
    if (*at == 'S') return end - at >= 8 && !memcmp(at, "STORED\r\n", 8) ? at + 8 : NULL;
    for (int items = 0; !is_end(at, end); items++) {  /* several for a retrieval of several keys */
        if (items) *odd = 1;
        if (end - at < 6 || memcmp(at, "VALUE ", 6) || !(at = value_end(at, end, odd)) || at == end) return NULL;
    }
    return at + END_SIZE;
}
