/* Commands of the binary protocol. */

enum {
    OP_GET, OP_SET, OP_DELETE = 4, OP_INCR, OP_DECR, OP_GETQ = 9, OP_NOOP, OP_GETK = 12, OP_GETKQ, OP_APPEND, OP_PREPEND,
    OP_SETQ = 17, OP_DELETEQ = 20, OP_INCRQ, OP_DECRQ, OP_APPENDQ = 25, OP_PREPENDQ, OP_TOUCH = 28
};

typedef struct {
    int opcode;
    u64 cas;
    Word opaque, extras, key, value;
} Packet;

static u64 read_big(const char *at, int size) {
    u64 number = 0;
    for (int i = 0; i < size; i++) number = number << 8 | (unsigned char)at[i];
    return number;
}

static char *write_big(char *to, u64 number, int size) {
    for (int i = size; i--; number >>= 8) to[i] = (char)number;
    return to + size;
}

static void append_header(Runner *r, const Packet *p, int key, int extras, int status, u64 body, u64 unique) {
    char *to = r->reply + r->reply_size;
    *to++ = (char)0x81;
    *to++ = (char)p->opcode;
    to = write_big(to, (u64)key, 2);
    *to++ = (char)extras;
    *to++ = 0;
    to = write_big(to, (u64)status, 2);
    to = write_big(to, body, 4);
    memcpy(to, p->opaque.at, 4);
    write_big(to + 4, unique, 8);
    r->reply_size += HEADER;
}

static void append_big(Runner *r, u64 number, int size) {
    write_big(r->reply + r->reply_size, number, size);
    r->reply_size += size;
}

static int binary_miss(Runner *r, const Packet *p, int with_key) {
    if (with_key) {
        append_header(r, p, (int)p->key.size, 0, 1, (u64)p->key.size, 0);
        append(r, p->key.at, p->key.size);
    } else {
        append_header(r, p, 0, 0, 1, 9, 0);
        APPEND(r, "Not found");
    }
    return DONE;
}

static int binary_get(Runner *r, const Packet *p, View *v, int known) {
    int with_key = p->opcode == OP_GETK || p->opcode == OP_GETKQ, quiet = p->opcode == OP_GETQ || p->opcode == OP_GETKQ;
    int done;
    if (p->extras.size || p->value.size) return STOP;
    if (known == ABSENT) return (done = get_miss(r)) != DONE || quiet ? done : binary_miss(r, p, with_key);
    Word value = {value_at(v), value_size(v)};
    if ((done = make_room(r, value.size + 1024)) != DONE || (done = use_read(r, v)) != DONE) return done;
    if (assign(r, v, 0) < 0) return ERROR;
    Py_ssize_t key = with_key ? p->key.size : 0;
    append_header(r, p, (int)key, 4, 0, (u64)(4 + key + value.size), v->unique);
    append_big(r, (u64)read_number(flags_of(v, p->key.size)), 4);
    append(r, p->key.at, key);
    append(r, value.at, value.size);
    COUNT(r, hits);
    return DONE;
}

static int binary_set(Runner *r, const Packet *p, View *v, int known) {
    if (p->cas || p->extras.size != 8 || p->value.size > r->safe_size) return STOP;
    char digits[20];
    Word flags = {digits, write_digits(digits, read_big(p->extras.at, 4))};
    int shown = p->opcode == OP_SET;
    long long exptime = (long long)read_big(p->extras.at + 4, 4);
    if (exptime > INT_MAX) return STOP;
    int done = store_for_unique(r, v, known, p->key, flags, p->value, exptime, shown);
    if (done != DONE || !shown) return done;
    if ((done = assign(r, v, 0)) == DONE) append_header(r, p, 0, 0, 0, 0, v->unique);
    return done;
}

static int binary_join(Runner *r, const Packet *p, View *v, int known, int before) {
    if (p->cas || p->extras.size || known == ABSENT) return STOP;
    int done = join(r, v, p->key, p->value, before, 0);
    if (done != DONE || (p->opcode != OP_APPEND && p->opcode != OP_PREPEND)) return done;
    if ((done = assign(r, v, 0)) == DONE) append_header(r, p, 0, 0, 0, 0, v->unique);
    return done;
}

static int binary_count(Runner *r, const Packet *p, View *v, int known, int down) {
    if (p->cas || p->value.size || p->extras.size != 20 || known == ABSENT) return STOP;
    u64 number;
    int done = count_in_place(r, v, read_big(p->extras.at, 8), down, &number);
    if (done != DONE || (p->opcode != OP_INCR && p->opcode != OP_DECR)) return done;
    if ((done = assign(r, v, 0)) == DONE) {
        append_header(r, p, 0, 0, 0, 8, v->unique);
        append_big(r, number, 8);
    }
    return done;
}

static int binary_delete(Runner *r, const Packet *p, const View *v, int known) {
    if (p->cas || p->extras.size || p->value.size) return STOP;
    int done = known == ABSENT ? delete_miss(r) : delete_item(r, v);
    if (done != DONE) return done;
    if (known == ABSENT) return binary_miss(r, p, 0);
    if (p->opcode == OP_DELETE) append_header(r, p, 0, 0, 0, 0, 0);
    return DONE;
}

static int binary_touch(Runner *r, const Packet *p, View *v, int known) {
    if (p->extras.size != 4 || p->value.size || known == ABSENT || (r->cas && !v->unique)) return STOP;
    long long exptime = (long long)read_big(p->extras.at, 4);
#ifndef RECORDS
    if ((exptime != 0) != (v->expires != 0)) return STOP;
#endif
    int done = retime(r, v, exptime);
    if (done != DONE) return done;
    append_header(r, p, 0, 4, 0, 4, v->unique);
    append_big(r, (u64)read_number(flags_of(v, p->key.size)), 4);
    return DONE;
}

/* Takes a packet apart; STOP if it is not complete, has no key or a long one, or is none. */
static int read_packet(const char *start, const char *end, Packet *p, const char **after) {
    if (end - start < HEADER || (unsigned char)*start != 0x80) return STOP;
    Py_ssize_t key = (Py_ssize_t)read_big(start + 2, 2), extras = (unsigned char)start[4], body = (Py_ssize_t)read_big(start + 8, 4);
    p->opcode = (unsigned char)start[1];
    p->opaque = (Word){start + 12, 4};
    p->cas = read_big(start + 16, 8);
    start += HEADER;
    if (body > end - start || key + extras > body || key > LONGEST_KEY || (!key && (p->opcode != OP_NOOP || body))) return STOP;
    p->extras = (Word){start, extras};
    p->key = (Word){start + extras, key};
    p->value = (Word){start + extras + key, body - extras - key};
    *after = start + body;
    return DONE;
}

static int binary_command(Runner *r, const Packet *p) {
    if (p->opcode == OP_NOOP) return p->key.size ? STOP : (append_header(r, p, 0, 0, 0, 0, 0), DONE);
    for (Py_ssize_t i = 0; i < p->key.size; i++) if ((unsigned char)p->key.at[i] <= ' ') return STOP;
    View v = {0};
    int known = look(r, p->key, &v);
    if (known < DONE) return known;
    switch (p->opcode) {
        case OP_GET: case OP_GETQ: case OP_GETK: case OP_GETKQ: return binary_get(r, p, &v, known);
        case OP_SET: case OP_SETQ: return binary_set(r, p, &v, known);
        case OP_APPEND: case OP_APPENDQ: return binary_join(r, p, &v, known, 0);
        case OP_PREPEND: case OP_PREPENDQ: return binary_join(r, p, &v, known, 1);
        case OP_INCR: case OP_INCRQ: return binary_count(r, p, &v, known, 0);
        case OP_DECR: case OP_DECRQ: return binary_count(r, p, &v, known, 1);
        case OP_DELETE: case OP_DELETEQ: return binary_delete(r, p, &v, known);
        case OP_TOUCH: return binary_touch(r, p, &v, known);
        default: return STOP;
    }
}
