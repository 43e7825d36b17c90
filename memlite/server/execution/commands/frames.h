/* Items are stored in the form of the reply to a get: functions that read its parts, and write
it. */

static const char *value_at(const View *v) {
    return (const char *)memchr(v->at, '\n', v->size) + 1;
}

/* `begin` is where the value begins. */
static inline Py_ssize_t value_size(const View *v, const char *begin) { return v->at + v->size - AFTER_VALUE - begin; }

/* The flags in the reply to a get: the digits before the size. */
static inline Word flags_of(const View *v, Py_ssize_t key_size) {
    const char *begin = v->at + 7 + key_size, *end = begin + 1;
    while (*end != ' ') end++;
    return (Word){begin, end - begin};
}
#define IS_ZERO(flags) ((flags).size == 1 && *(flags).at == '0')

/* The size in the reply to a get: the digits before the line ending that precedes the value. */
static inline Word size_after(Word flags, const char *value) {
    const char *begin = flags.at + flags.size + 1;
    return (Word){begin, value - 2 - begin};
}

/* The parts of a reply to a get; the value consists of at most two pieces. */
typedef struct { Word key, flags, one, two; char digits[20]; int length; } Frame;

static Frame frame_of(Word key, Word flags, Word one, Word two) {
    Frame frame = {key, flags, one, two, {0}, 0};
    frame.length = write_digits(frame.digits, (u64)(one.size + two.size));
    return frame;
}

static Py_ssize_t frame_size(const Frame *f) {
    return 6 + f->key.size + 1 + f->flags.size + 1 + f->length + 2 + f->one.size + f->two.size + AFTER_VALUE;
}

static void write_frame(char *to, const Frame *f) {
#define WRITE(from, size) (memcpy(to, from, size), to += size)
    WRITE("VALUE ", 6);
    WRITE(f->key.at, f->key.size);
    *to++ = ' ';
    WRITE(f->flags.at, f->flags.size);
    *to++ = ' ';
    WRITE(f->digits, f->length);
    WRITE("\r\n", 2);
    WRITE(f->one.at, f->one.size);
    WRITE(f->two.at, f->two.size);
    memcpy(to, "\r\nEND\r\n", AFTER_VALUE);
}
