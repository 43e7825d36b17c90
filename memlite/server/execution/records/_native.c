/* Runs of commands on a table shared by several processes: the commands of ../_native.c, on its records. */

#define RECORDS
#include "../_native.c"
