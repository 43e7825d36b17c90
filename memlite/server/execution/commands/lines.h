/* Parsing of lines: words and numbers, and the value after a line. */

/* Returns the end of a word: the first space or control character. */
static inline const char *word_end(const char *at, const char *end) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; end - at >= 8; at += 8) {
        u64 eight;
        memcpy(&eight, at, 8);
        /* The highest bit of each byte below 0x21, and perhaps of some after the first of these. */
        u64 low = (eight - 0x2121212121212121) & ~eight & 0x8080808080808080;
        if (low) return at + __builtin_ctzll(low) / 8;
    }
#endif
    while (at < end && (unsigned char)*at > ' ') at++;
    return at;
}

/* A number of at most 18 digits without leading zeros; -1 for anything else. */
static long long read_number(Word word) {
    if (word.size < 1 || word.size > SAFE_DIGITS - 1 || (word.at[0] == '0' && word.size > 1)) return -1;
    long long number = 0;
    for (Py_ssize_t i = 0; i < word.size; i++) {
        unsigned digit = (unsigned char)word.at[i] - '0';
        if (digit > 9) return -1;
        number = number * 10 + digit;
    }
    return number;
}

static int is(Word word, const char *text, Py_ssize_t size) {
    return word.size == size && !memcmp(word.at, text, size);
}
#define IS(word, text) is(word, text, sizeof text - 1)

/* Reads the words of a line, at most `most`, with single spaces between them; STOP if the line is incomplete, does not
end in CRLF, or has more words or other control characters. `after` is set to where the next line begins. */
static int read_words(const char *at, const char *end, Word *words, int most, const char **after) {
    int count = 0;
    for (;;) {
        const char *begin = at;
        at = word_end(at, end);
        if (at == begin || at == end || count == most) return STOP;
        words[count++] = (Word){begin, at - begin};
        if (*at != ' ') break;
        at++;
    }
    if (*at != '\r' || at + 1 == end || at[1] != '\n') return STOP;
    *after = at + 2;
    return count;
}

/* Reads the value after a storage command's line; INCOMPLETE, or STOP if it is too large or not followed by CRLF. */
static int read_value(Runner *r, Word digits, const char **after, const char *end, Word *value) {
    long long size = read_number(digits);
    if (size < 0 || size > r->safe_size) return STOP;
    if (size + 2 > end - *after) {
        r->missing = size + 2 - (end - *after);
        return INCOMPLETE;
    }
    *value = (Word){*after, (Py_ssize_t)size};
    *after += size + 2;
    return (*after)[-2] == '\r' && (*after)[-1] == '\n' ? DONE : STOP;
}

static int is_flags(Word word) {
    long long flags = read_number(word);
    return flags >= 0 && flags <= UINT_MAX;
}
