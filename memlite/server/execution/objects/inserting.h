/* Inserting new items, and adding them to a queue. */

/* Puts an item of `size` bytes, whose line was absent, into a queue; see `admit` of S3Fifo. `main` is what `recall`
returned, and `first` whether the table has never been full. */
static int enqueue(Runner *r, PyObject *line, PyObject *item, int full, Py_ssize_t size, int first, int main) {
    PyObject *left = get(r->policy, &r->left), *place = NULL;
    int done = left && PyDict_Check(left) && learn(r, N__main_bytes) == DONE && learn(r, N__small_bytes) == DONE
               && learn(r, N__left_bytes) == DONE ? DONE : ERROR;  /* so that nothing can fail once it has a place */
    if (done == DONE && PyDict_GET_SIZE(left) && !(place = PyDict_GetItemWithError(left, line)) && PyErr_Occurred()) done = ERROR;
    if (done == DONE && place) {  /* it gets its former place back */
        main = (int)(number_of(Py_NewRef(place)) & MAIN) != 0;
        if (PyDict_DelItem(left, line) || change(r, N__left_bytes, -left_by(line)) < 0) done = ERROR;
    } else if (done == DONE) {
        if (first) {
            if (learn(r, N__small_bytes) < 0 || learn(r, N__small_limit) < 0) done = ERROR;
            main = r->now_is[N__small_bytes] >= r->now_is[N__small_limit];
        }
        if (done == DONE) done = push(r, main ? &r->main_queue : &r->small_queue, line);
    }
    if (done == DONE && main) done = put(item, &r->state, r->fresh[full ? 3 : 1]);
    if (done == DONE) done = change(r, main ? N__main_bytes : N__small_bytes, size);
    Py_XDECREF(left);
    if (done < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "unexpected eviction policy");
    return done;
}

/* Removes an item that could not be added to a queue; the exception stays set. */
static int leave_out(Runner *r, PyObject *line) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (PyDict_DelItem(dict_of(r, line), line)) PyErr_Clear();
    PyErr_Restore(type, value, trace);
    return ERROR;
}

/* Stores a value (the reference is stolen) under the absent key that was looked up last: see `ItemTable.put`. STOP if there
is no room, or if more work is due. */
static int insert(Runner *r, PyObject *wire, long long exptime, PyObject **stored) {
    double expires = 0;
    PyObject *line = absent_line(r), *item = NULL;
    int done = wire && line ? check_never_flushed(r) : ERROR;
    if (done == DONE && !r->usual_table) done = STOP;
    if (done == DONE) done = expiry(r, exptime, &expires);
    if (done == DONE) done = know_fresh(r);
    if (done == DONE) {
        int full = expires != 0;
        Py_ssize_t size = PLAIN_SIZE + allocated(PyBytes_GET_SIZE(wire)) + allocated(PyBytes_GET_SIZE(line));
        if (full) size += FULL_MORE + NUMBER_SIZE;
        PyObject *garbage = get(r->table, &r->garbage);
        PyObject *filling = get(r->policy, &r->filling), *evicts = NULL;
        int first = filling == Py_True, main = 0, over = 0;
        if (!garbage || !filling || learn(r, N_used) < 0 || learn(r, N__room) < 0 || learn(r, N__until_measured) < 0) done = ERROR;
        else if (!PyList_Check(garbage) || PyList_GET_SIZE(garbage) || r->now_is[N__until_measured] <= size) done = STOP;
        else if ((over = r->now_is[N_used] + size > r->now_is[N__room])) {
            if (!(evicts = get(r->table, &r->evicts))) done = ERROR;
            else if (evicts != Py_True || first || size > LARGE || size > r->now_is[N__room]) done = STOP;
        }
        Py_XDECREF(garbage);
        Py_XDECREF(filling);
        Py_XDECREF(evicts);
        if (done == DONE && !first && (main = recall(r, line)) < 0) done = ERROR;
        if (done == DONE && over) done = evict(r, size);
        if (done == DONE && !(item = new_item(r, full, wire, r->fresh[full ? 2 : 0], expires))) done = ERROR;
        Py_CLEAR(r->spare);
        if (done == DONE && PyDict_SetItem(dict_of(r, line), line, item)) done = ERROR;
        if (done == DONE && enqueue(r, line, item, full, size, first, main) < 0) done = leave_out(r, line);
        if (done == DONE) done = change(r, N_used, size);
        if (done == DONE) done = change(r, N__until_measured, -size);
    }
    Py_XDECREF(wire);
    Py_XDECREF(item);
    if (done != DONE) return done;
    *stored = item;  /* borrowed from the table */
    COUNT(r, cmd_set);
    COUNT(r, total_items);
    return DONE;
}
