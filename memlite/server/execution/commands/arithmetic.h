/* Arithmetic on values: `incr`, `decr` and `ma`. */

enum { GROWS = DONE + 20 };

/* Computes an item's number after an increment, or a decrement if `down`, and writes its digits. If
they need more room than the old value, returns GROWS plus their length. STOP if the value is not a
number of at most SAFE_DIGITS digits, or the number overflows. */
static int count_of_item(const View *v, u64 delta, int down, u64 *number, char *digits) {
    const char *stored = value_at(v), *end = v->at + v->size - AFTER_VALUE, *at = stored;
    if (end - stored > SAFE_DIGITS) return STOP;
    u64 found = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++) found = found * 10 + (u64)(*at - '0');
    if (at == stored) return STOP;
    while (at < end && *at == ' ') at++;  /* left over from a number with more digits */
    if (at < end) return STOP;
    if (down) found = found > delta ? found - delta : 0;
    else if (__builtin_add_overflow(found, delta, &found)) return STOP;
    int length = write_digits(digits, *number = found);
    if (length > end - stored) return GROWS + length;
    memset(digits + length, ' ', end - stored - length);
    return DONE;
}

/* Whether an item's value is certainly not a number, judging by its first byte. */
static int is_no_number(const View *v) {
    const char *at = value_at(v);
    if (at == v->at + v->size - AFTER_VALUE) return 1;
    return !(*at >= '0' && *at <= '9') && !strchr(" \t\n\v\f\r+", *at);
}
