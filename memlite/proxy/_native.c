/* The fast path of usual requests through a proxy, and the framing of all requests: the counterpart of framing.py,
single_requests.py, parts.py and others.

Each header is the counterpart of the Python file of the same name, or of the file that it names, which explains more; tests
compare both. A header may use the headers included before it. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>
#include <time.h>
#include "../core/digits.h"
#include "../core/sending.h"
#include "../core/slots.h"
#include "words.h"
#include "known_nodes.h"
#include "replies.h"
#include "recognizer.h"
#include "framing.h"
#include "attributes.h"
#include "asked.h"
#include "writer.h"
#include "node.h"
#include "times.h"
#include "traced.h"
#include "flusher.h"
#include "lone.h"
#include "parts.h"
#include "split.h"
#include "delivery.h"
#include "batch.h"
#include "multiget.h"
#include "receiving.h"

#define VERSION 9  /* of the interface: a module compiled for another version is not used */

static PyMethodDef methods[] = {
    {"split", (PyCFunction)(void (*)(void))split, METH_FASTCALL, "Group requests by node."},
    {"split_keys", (PyCFunction)(void (*)(void))split_keys, METH_FASTCALL, "Group keys by node."},
    {"expect", expect, METH_O, "Set the table of expected replies."},
    {"know", (PyCFunction)know, METH_VARARGS, "Look up the attributes of nodes and of their connections."},
    {"deliver", deliver, METH_O, "Send the replies of executors."},
    {"send_progress", send_progress, METH_O, "Send the replies of executors that have arrived."},
    {"hand_out", (PyCFunction)(void (*)(void))hand_out, METH_FASTCALL, "Pass replies to their requests."},
    {"split_gets", (PyCFunction)split_gets, METH_O, "Return the replies to gets, and where they end."},
    {"items", (PyCFunction)(void (*)(void))items, METH_FASTCALL, "Return the items of a reply, and where they end."},
    {"gather", (PyCFunction)(void (*)(void))gather, METH_FASTCALL, "Group values by owner."},
    {"interleave", (PyCFunction)(void (*)(void))interleave, METH_FASTCALL, "Return pieces in the order of their owners."},
    {NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "Framing in C.", -1, methods};
static int intern_names(void) {
    struct { PyObject **to; const char *name; } all[] = {
        {&s_unexpected, "_unexpected"}, {&s_missing, "missing"}, {&s_answer, "answer"}, {&s_answered, "answered"}, {&s_count_failure, "count_failure"}, {&s_deliver, "deliver"},
        {&s_send_progress, "send_progress"}, {&s_append, "append"}, {&s_bytes_written, "bytes_written"}, {&s_fail, "fail"},
        {&s_note_time, "_note_time"}, {&s_popleft, "popleft"}, {&s_send, "send"}, {&s_take_some, "_take_some"},
        {&s_wrote, "wrote"}, {&s_write, "write"}, {&s_unsent, "get_write_buffer_size"}, {&s_together, "_together"},
        {&s_call_together, "call_together"}, {&s_flush, "_flush"}, {&s_handed_out, "_handed_out"}, {&s_lone, "lone"},
        {&s_take_input, "take"}, {&s_appendleft, "appendleft"}, {&s_progressed, "progressed"}, {&s_loop, "loop"}, {&s_call_soon, "call_soon"}, {&s_record, "record"},
        {&s_find, "find"}, {&s_number, "number"}, {&s_version, "version"}, {&s_name, "name"},
        {&s_cluster, "_cluster"}, {&s_end, "_end"}, {&s_merged_reply, "merged_reply"}, {&s_multigets, "multigets"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!*all[i].to && !(*all[i].to = PyUnicode_InternFromString(all[i].name))) return -1;
    any_answered = (Field){PyUnicode_InternFromString("_answered"), -1};
    PyTypeObject *types[] = {&Asked_type, &Lone_type, &Part_type, &Batch_type, &MultiGet_type, &Writer_type, &Flusher_type, &Calls_type, &Reception_type, &Receiver_type, &Turns_type, &Traced_type};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) if (PyType_Ready(types[i])) return -1;
    return any_answered.name ? 0 : -1;
}

PyMODINIT_FUNC PyInit__native(void) {
    find_plain();
    PyObject *m = intern_names() ? NULL : PyModule_Create(&module);
    PyObject *names = m ? Py_BuildValue("[ssssssssssssssssssssss]", "VERSION", "Asked", "Batch", "Flusher", "Lone", "MultiGet", "Part", "Receiver",
                                        "Traced", "Turns", "Writer",
                                        "deliver", "expect", "gather", "hand_out", "interleave", "items", "know", "send_progress", "split", "split_gets",
                                        "split_keys") : NULL;
    if (!names || PyModule_AddObjectRef(m, "__all__", names) || PyModule_AddIntMacro(m, VERSION)
        || PyModule_AddObjectRef(m, "Asked", (PyObject *)&Asked_type)
        || PyModule_AddObjectRef(m, "Lone", (PyObject *)&Lone_type)
        || PyModule_AddObjectRef(m, "Flusher", (PyObject *)&Flusher_type)
        || PyModule_AddObjectRef(m, "Receiver", (PyObject *)&Receiver_type)
        || PyModule_AddObjectRef(m, "Writer", (PyObject *)&Writer_type)
        || PyModule_AddObjectRef(m, "Traced", (PyObject *)&Traced_type)
        || PyModule_AddObjectRef(m, "Turns", (PyObject *)&Turns_type)
        || PyModule_AddObjectRef(m, "Batch", (PyObject *)&Batch_type)
        || PyModule_AddObjectRef(m, "MultiGet", (PyObject *)&MultiGet_type)
        || PyModule_AddObjectRef(m, "Part", (PyObject *)&Part_type)) Py_CLEAR(m);
    Py_XDECREF(names);
    return m;
}
