/* The decimal digits of a number, for modules in C, where snprintf would take most of the time. */

/* `to` has room for 20. Returns how many there are. */
static int write_digits(char *to, unsigned long long number) {
    char digits[20];
    int size = 0;
    do digits[size++] = (char)('0' + number % 10); while (number /= 10);
    for (int i = 0; i < size; i++) to[i] = digits[size - 1 - i];
    return size;
}
