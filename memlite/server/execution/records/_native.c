/* Runs of commands on a table that processes share: the commands of ../_native.c, on its records. */

#define RECORDS
#include "../_native.c"
