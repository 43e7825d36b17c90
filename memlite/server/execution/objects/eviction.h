/* Eviction: the counterpart of `S3Fifo.evict` and of its caller in the table. */

/* The bytes of an item, and its state; see `weigh`. */
static int weigh(Runner *r, PyObject *line, PyObject *item, Py_ssize_t *size, long long *state) {
    PyObject *wire = get(item, &r->wire), *expires = NULL, *extra = NULL;
    int done = wire && PyBytes_Check(wire) ? DONE : ERROR;
    *state = number_of(get(item, &r->state));
    if (*state == -1 && PyErr_Occurred()) done = ERROR;
    if (done == DONE) *size = PLAIN_SIZE + allocated(PyBytes_GET_SIZE(wire)) + allocated(PyBytes_GET_SIZE(line));
    if (done == DONE && *state & FULL) {
        int mortal, more;
        if (!PyObject_TypeCheck(item, (PyTypeObject *)r->full_type)
            || !(expires = get(item, &r->expires)) || (mortal = PyObject_IsTrue(expires)) < 0
            || !(extra = get(item, &r->extra)) || (more = PyObject_IsTrue(extra)) < 0) done = ERROR;
        else *size += FULL_MORE + (mortal ? NUMBER_SIZE : 0)
                      + (!more ? 0 : PyLong_Check(extra) ? NUMBER_SIZE : NUMBER_SIZE + META_FLAGS_SIZE);
    }
    Py_XDECREF(wire);
    Py_XDECREF(expires);
    Py_XDECREF(extra);
    if (done < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "unexpected item in the table");
    return done;
}

/* Takes an item from its queue, and adds it to the evicted ones. */
static int choose(Runner *r, PyObject *part, PyObject *line, PyObject *item, Py_ssize_t size, long long state) {
    if (r->gone_count == r->gone_room) {
        Py_ssize_t room = r->gone_room ? 2 * r->gone_room : 32;
        Gone *larger = PyMem_Realloc(r->gone, room * sizeof *larger);
        if (!larger) return PyErr_NoMemory(), ERROR;
        r->gone = larger;
        r->gone_room = room;
    }
    if (take(r, part) < 0) return ERROR;
    r->gone[r->gone_count++] = (Gone){Py_NewRef(line), Py_NewRef(item), size, state};
    return DONE;
}

/* Spares an item: gives it this state and moves it to the end of the main queue. */
static int spare(Runner *r, PyObject *part, PyObject *line, PyObject *item, long long state) {
    PyObject *shared = PyObject_CallFunction(r->shared, "L", state);
    int done = shared ? push(r, &r->main_queue, line) : ERROR;
    if (done == DONE) done = take(r, part);
    if (done == DONE) done = put(item, &r->state, shared);
    Py_XDECREF(shared);
    return done;
}

/* See `S3Fifo._evict_small`. `size` is the number of bytes to free; on return, it is the number of
bytes freed, even after an error. */
static int evict_small(Runner *r, long long *size, long long *chances) {
    long long freed = 0, moved = 0, state;
    int done = DONE;
    while (done == DONE && freed < *size && *chances) {
        PyObject *part, *line, *item;
        Py_ssize_t weight;
        if ((done = oldest_item(r, &r->small_queue, &part, &line, &item)) != DONE) break;
        if (item) {
            done = weigh(r, line, item, &weight, &state);
            if (done == DONE && (state & FREQUENCY) < TO_MAIN) {
                done = remember(r, line);
                if (done == DONE) done = choose(r, part, line, item, weight, state);
                if (done == DONE) freed += weight;
                if (done == DONE && r->now_is[N__main_bytes] + moved > r->now_is[N__main_limit]) done = ABSENT;
            } else if (done == DONE && (done = spare(r, part, line, item, (state & ~FREQUENCY) | MAIN)) == DONE) {
                *chances -= 1;
                moved += weight;
            }
        }
        Py_DECREF(line);
        Py_DECREF(part);
    }
    *size = freed;
    if (change(r, N__small_bytes, -freed - moved) < 0 || change(r, N__main_bytes, moved) < 0) return ERROR;
    return done < 0 ? ERROR : DONE;
}

/* See `S3Fifo._evict_main`: evicts one item. `freed` is its size, or 0. */
static int evict_main(Runner *r, long long *freed, long long *chances) {
    long long left = *chances, state;
    int done = DONE;
    *freed = 0;
    while (done == DONE && !*freed) {
        PyObject *part, *line, *item;
        Py_ssize_t weight;
        if ((done = oldest_item(r, &r->main_queue, &part, &line, &item)) != DONE) break;
        if (item) {
            done = weigh(r, line, item, &weight, &state);
            if (done == DONE && state & FREQUENCY && left) {
                left--;
                done = spare(r, part, line, item, state - 1);
            } else if (done == DONE && (done = choose(r, part, line, item, weight, state)) == DONE) {
                *chances = left;
                *freed = weight;
                done = change(r, N__main_bytes, -weight);
            }
        }
        Py_DECREF(line);
        Py_DECREF(part);
    }
    return done < 0 ? ERROR : DONE;
}

/* Chooses items that take `size` bytes together; see `S3Fifo.evict`. */
static int choose_all(Runner *r, long long size) {
    if (learn(r, N__small_bytes) < 0 || learn(r, N__main_bytes) < 0 || learn(r, N__main_limit) < 0
        || learn(r, N__patience) < 0) return ERROR;
    long long chances = r->now_is[N__patience], all = size;
    while (all > 0) {
        int main_first = !r->now_is[N__small_bytes] || r->now_is[N__main_bytes] > r->now_is[N__main_limit];
        long long freed = 0;
        for (int turn = 0; !freed && turn < (main_first ? 3 : 2); turn++) {
            if ((turn & 1) == main_first) {
                freed = all;
                if (evict_small(r, &freed, &chances) < 0) return ERROR;
            } else if (evict_main(r, &freed, &chances) < 0) return ERROR;
        }
        if (!freed) {
            Py_ssize_t places = chances ? 0 : PyObject_Size(r->policy);
            if (places <= 0) return places < 0 ? ERROR : DONE;
            chances = r->now_is[N__patience];
        }
        all -= freed;
    }
    return DONE;
}

static void forget_gone(Runner *r) {
    while (r->gone_count) {
        Gone *one = &r->gone[--r->gone_count];
        Py_DECREF(one->line);
        if (!r->spare && Py_REFCNT(one->item) == 1 && Py_TYPE(one->item) == (PyTypeObject *)r->item_type && r->wire.at >= 0) {
            r->spare = one->item;
            Py_CLEAR(*(PyObject **)((char *)one->item + r->wire.at));
        } else Py_DECREF(one->item);
    }
}

#include "evicted.h"

/* Evicts items until an item of `size` bytes has room, and some more; see `ItemTable._make_room`. */
static int evict(Runner *r, Py_ssize_t size) {
    if (learn(r, N__ahead) < 0) return ERROR;
    long long used = r->now_is[N_used], until = r->now_is[N__room] - size - r->now_is[N__ahead];
    if (until < used - 2 * size - EVICTED_EXTRA) until = used - 2 * size - EVICTED_EXTRA;
    int done = choose_all(r, used - until);
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    /* Even if choosing further items failed: these have been taken from their queues. */
    for (Py_ssize_t i = 0; i < r->gone_count; i++) {
        PyObject *line = r->gone[i].line;
        if (change(r, N_used, -r->gone[i].size) < 0 || PyDict_DelItem(dict_of(r, line), line)) done = ERROR;
    }
    if (r->gone_count && tell(r) < 0) done = ERROR;
    forget_gone(r);
    if (type) PyErr_Restore(type, value, trace);
    return done == DONE ? follow(r) : done;
}
