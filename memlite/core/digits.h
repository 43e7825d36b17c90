/* The decimal digits of a number, for C modules in which snprintf would take most of the time. */

/* `to` has room for 20 digits. Returns the number of digits. */
static int write_digits(char *to, unsigned long long number) {
    static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748"
        "495051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
    char digits[20], *at = digits + sizeof digits;
    for (; number >= 10; number /= 100) memcpy(at -= 2, pairs + 2 * (number % 100), 2);
    if (number || at == digits + sizeof digits) *--at = (char)('0' + number);
    int size = (int)(digits + sizeof digits - at);
    memcpy(to, at, size);
    return size;
}
