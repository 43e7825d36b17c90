/* Sends small amounts of data directly, bypassing uvloop's transport, for C modules. native_receiver.py decides which
transports allow this.

Include Python.h first. */

#include <sys/socket.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0  /* Python ignores the signal */
#endif

#define MOST_AT_ONCE ((Py_ssize_t)16 * 1024)  /* bytes sent this way; more are left to the transport, without a copy */

/* `send` without glibc's cancellation point, which costs two locked instructions once there is a second thread. */
static ssize_t send_uncancelled(int fd, const char *at, Py_ssize_t size) {
#ifdef SYS_sendto
    return syscall(SYS_sendto, fd, at, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, (socklen_t)0);
#else
    return send(fd, at, size, MSG_DONTWAIT | MSG_NOSIGNAL);
#endif
}

/* Sends `size` bytes to a transport's socket, unless the transport itself still has bytes to send, as its method `unsent`
reports. Returns how many were sent, or -1 with a Python exception set. A socket error counts as none sent: the transport
encounters it again, and reports it. */
static Py_ssize_t send_now(int fd, PyObject *transport, PyObject *unsent, const char *at, Py_ssize_t size) {
    PyObject *waiting = PyObject_Vectorcall(unsent, &transport, 1, NULL);
    int waits = waiting ? PyObject_IsTrue(waiting) : -1;
    Py_XDECREF(waiting);
    if (waits) return waits < 0 ? -1 : 0;
    ssize_t sent = send_uncancelled(fd, at, size);
    return sent < 0 ? 0 : sent;
}
