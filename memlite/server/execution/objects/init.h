/* Creation of a runner on Python objects: see ../_native.c. */

#define MODULE "memlite.server.execution._native"

static int Runner_init(Runner *r, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"engine", "item", "full_item", "table", "policy", "shared", "text_fallback", "binary_fallback", "replies",
                            "at_most", "counts", "epoch", NULL};
    PyObject *engine, *item, *full, *table_type, *policy_type, *shared, *text, *binary, *replies, *counts;
    if (r->engine) return PyErr_Format(PyExc_TypeError, "a runner can be initialized only once"), -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O!O!O!OOOO!nO!L:Runner", names, &engine, &PyType_Type, &item, &PyType_Type, &full,
                                     &PyType_Type, &table_type, &PyType_Type, &policy_type, &shared, &text, &binary,
                                     &PyList_Type, &replies, &r->at_most, &PyType_Type, &counts, &r->epoch)) return -1;
    r->table_type = Py_NewRef(table_type);
    r->policy_type = Py_NewRef(policy_type);
    r->shared = Py_NewRef(shared);
    r->item_type = Py_NewRef(item);
    r->full_type = Py_NewRef(full);
    r->text_fallback = Py_NewRef(text);
    r->binary_fallback = Py_NewRef(binary);
    r->replies = Py_NewRef(replies);
    r->engine = Py_NewRef(engine);
    PyObject *usage = r->usage = PyObject_GetAttrString(engine, "usage"), *policy = NULL, *queue = NULL, *ghost = NULL, *cas, *safe;
    r->table = PyObject_GetAttrString(engine, "items");
    r->counters = PyObject_GetAttrString(engine, "counters");
    r->clock = PyObject_GetAttrString(engine, "clock");
    r->count_evictions = PyObject_GetAttrString(engine, "count_evictions");
    r->sizes = PyObject_GetAttrString(engine, "sizes");
    PyObject *sizes = r->sizes ? PyObject_GetAttrString(r->sizes, "chunk_sizes") : NULL;
    if (sizes) {
        r->overhead = number_of(PyObject_GetAttrString(r->sizes, "_overhead"));
        r->overhead_flags = number_of(PyObject_GetAttrString(r->sizes, "_overhead_flags"));
        if (!PyErr_Occurred() && (!PyList_CheckExact(sizes) || PyList_GET_SIZE(sizes) > MOST_CLASSES))
            PyErr_SetString(PyExc_TypeError, "unexpected list of size classes");
        if (!PyErr_Occurred()) r->classes = (int)PyList_GET_SIZE(sizes);
        for (int i = 0; i < r->classes; i++) r->chunk_sizes[i] = PyLong_AsLongLong(PyList_GET_ITEM(sizes, i));
        Py_DECREF(sizes);
    }
    if (PyErr_Occurred() || know_clock(r) < 0) return -1;
    cas = PyObject_GetAttrString(engine, "cas_enabled");
    safe = PyObject_GetAttrString(engine, "safe_size");
    if (r->table) policy = PyObject_GetAttrString(r->table, "_policy");
    if (policy && (PyObject *)Py_TYPE(policy) == policy_type && (queue = PyObject_GetAttrString(policy, "_small")))
        ghost = PyObject_GetAttrString(policy, "ghost");
    r->zero = PyFloat_FromDouble(0);
    PyObject *module = PyImport_ImportModule("memlite.core.meta_flags"), *type = NULL;
    if (module && (type = PyObject_GetAttrString(module, "MetaFlags"))) {
        PyObject *flags = PyObject_CallFunctionObjArgs(type, Py_True, NULL);
        if (flags) r->stale = Py_BuildValue("(iN)", 0, flags);
    }
    Py_XDECREF(module);
    Py_XDECREF(type);
    if ((r->full_states = PyList_New(MASK + 1)))
        for (int i = 0; i <= MASK; i++) PyList_SET_ITEM(r->full_states, i, Py_NewRef(Py_None));
    PyObject *collections = PyImport_ImportModule("collections"), *deque = NULL;
    if (collections && (deque = PyObject_GetAttrString(collections, "deque"))) r->popleft = PyObject_GetAttrString(deque, "popleft");
    Py_XDECREF(deque);
    Py_XDECREF(collections);
    if (cas) r->cas = (char)PyObject_IsTrue(cas);
    if (safe) r->safe_size = PyLong_AsSsize_t(safe);
    struct { PyObject **list; const char *name; } states[] = {
        {&r->read, "read"}, {&r->used, "used"}, {&r->fast_read, "fast_read"}, {&r->fast_store, "fast_store"},
        {&r->full_store, "full_store"}};
    for (size_t i = 0; usage && i < sizeof states / sizeof *states; i++) {
        PyObject *list = *states[i].list = PyObject_GetAttrString(usage, states[i].name);
        if (list && (!PyList_CheckExact(list) || PyList_GET_SIZE(list) != MASK + 1))
            PyErr_SetString(PyExc_TypeError, "states must be lists indexed by the bits of a state");
        if (PyErr_Occurred()) break;
    }
    if (!PyErr_Occurred()) {
        PyObject *tables = (PyObject *)Py_TYPE(r->table), *kind = (PyObject *)Py_TYPE(policy), *count = (PyObject *)Py_TYPE(r->counters);
        /* The fields of another policy are not used. */
        PyObject *queues = queue ? (PyObject *)Py_TYPE(queue) : kind, *ghosts = ghost ? (PyObject *)Py_TYPE(ghost) : kind;
        struct { Field *field; PyObject *type; const char *name; } fields[] = {
            {&r->wire, item, "wire"}, {&r->state, item, "state"}, {&r->expires, full, "expires"}, {&r->extra, full, "extra"},
            {&r->until, count, "until_slow_sample"}, {&r->get_by_line, tables, "get_by_line"}, {&r->flushed, tables, "flushed"},
            {&r->version, (PyObject *)Py_TYPE(engine), "_version"}, {&r->fresh_now, (PyObject *)Py_TYPE(usage), "fresh"},
            {&r->garbage, tables, "_garbage"}, {&r->filling, kind, "_filling"}, {&r->left, kind, "_left"}, {&r->ghost, kind, "ghost"}, {&r->small_queue, kind, "_small"}, {&r->main_queue, kind, "_main"},
            {&r->ghost_table, ghosts, "_table"}, {&r->ghost_mask, ghosts, "_mask"}, {&r->ghost_depth, ghosts, "_depth"},
            {&r->ghost_next, ghosts, "_next"}, {&r->push, queues, "push"}, {&r->oldest, queues, "_passed"},
            {&r->older, queues, "_ahead"}, {&r->newest, queues, "_new"}, {&r->evicts, tables, "_evict"},
            {&r->on_evict, tables, "on_evict"}, {&r->observer, (PyObject *)Py_TYPE(engine), "observer"},
            {&r->second, (PyObject *)Py_TYPE(r->clock), "second"}, {&r->evictions, (PyObject *)Py_TYPE(r->sizes), "evictions"},
            {&r->evicted, counts, "evicted"}, {&r->evicted_time, counts, "evicted_time"},
            {&r->evicted_unfetched, counts, "evicted_unfetched"}};
        int done = DONE;
        for (size_t i = 0; done == DONE && i < sizeof fields / sizeof *fields; i++)
            done = find_field(fields[i].field, fields[i].type, fields[i].name) ? ERROR : DONE;
        for (int i = 0; done == DONE && i < COUNTED; i++) done = find_field(&r->counter[i], count, COUNTER_NAMES[i]) ? ERROR : DONE;
        for (int i = 0; done == DONE && i < NUMBERS; i++)
            done = find_field(&r->number[i], i < BELONG_TO_TABLE ? tables : kind, NUMBER_NAMES[i]) ? ERROR : DONE;
    }
    Py_XDECREF(policy);
    Py_XDECREF(queue);
    Py_XDECREF(ghost);
    Py_XDECREF(cas);
    Py_XDECREF(safe);
    return PyErr_Occurred() ? -1 : 0;
}

#define REFERENCES(X) X(engine) X(table) X(counters) X(clock) X(usage) X(item_type) X(full_type) X(table_type) X(policy_type) X(shared) X(read) X(used) X(fast_read) \
    X(fast_store) X(full_store) X(text_fallback) X(binary_fallback) X(replies) X(find) X(dicts) X(policy) X(line) X(whole) X(fresh[0]) X(fresh[1]) X(fresh[2]) \
    X(fresh[3]) X(zero) X(popleft) X(sizes) X(count_evictions) X(full_states) X(stale)
#define FIELDS(r) &(r)->wire, &(r)->state, &(r)->expires, &(r)->extra, &(r)->until, &(r)->get_by_line, &(r)->flushed, \
    &(r)->version, &(r)->fresh_now, &(r)->garbage, &(r)->filling, &(r)->left, &(r)->ghost, &(r)->ghost_table, \
    &(r)->ghost_mask, &(r)->ghost_depth, &(r)->ghost_next, &(r)->small_queue, &(r)->main_queue, &(r)->push, &(r)->oldest, \
    &(r)->older, &(r)->newest, &(r)->evicts, &(r)->on_evict, &(r)->observer, &(r)->second, &(r)->evictions, &(r)->evicted, \
    &(r)->evicted_time, &(r)->evicted_unfetched, &(r)->monotonic, &(r)->offset
