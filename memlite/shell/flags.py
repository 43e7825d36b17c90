"""The flags of meta commands: what each means, for help, completion and replies."""

__all__ = ["META_FLAGS", "reply_flag"]

_KEY = {"b": "the key is base64"}
_ALL = {
    "k": "return the key",
    "O(token)": "opaque: copied to the reply",
    "q": "quiet: no reply to what is usual (a miss; a success)",
}
_CAS = {"C(cas)": "only if the cas unique is this", "E(cas)": "give it this cas unique"}
_PATH = {"P(token)": "ignored; for proxies", "L(token)": "ignored; for proxies"}

META_FLAGS: dict[str, dict[str, str]] = {
    "mg": {
        "v": "return the value",
        "f": "return the client flags",
        "c": "return the cas unique",
        "s": "return the value's size",
        "t": "return the TTL that remains, in seconds; -1: none",
        "h": "return whether it has been hit before",
        "l": "return the seconds since its last access",
        "u": "do not count this as an access",
        "T(ttl)": "set the TTL",
        "N(ttl)": "on a miss, create an empty item with this TTL",
        "R(ttl)": "win the right to recache if less TTL than this remains",
        "C(cas)": "leave the value out if the cas unique is this",
        "E(cas)": _CAS["E(cas)"],
        **_KEY,
        **_ALL,
        **_PATH,
    },
    "ms": {
        "T(ttl)": "TTL in seconds; without it, none",
        "F(flags)": "client flags, a number",
        "M(mode)": "mode: S set, E add, R replace, A append, P prepend",
        "N(ttl)": "with append or prepend: on a miss, create it with this TTL",
        "I": "with C: if that cas unique is lower, store it as stale",
        "c": "return the new cas unique",
        "s": "return the stored size",
        **_CAS,
        **_KEY,
        **_ALL,
        **_PATH,
    },
    "md": {
        "I": "invalidate: keep the item, marked as stale",
        "T(ttl)": "with I: set the TTL",
        "x": "remove the value, keep the item",
        **_CAS,
        **_KEY,
        **_ALL,
        **_PATH,
    },
    "ma": {
        "M(mode)": "mode: I increment, D decrement",
        "D(delta)": "by how much; without it, 1",
        "N(ttl)": "on a miss, create it with this TTL",
        "J(value)": "with N: the number to create it with; without it, 0",
        "T(ttl)": "set the TTL",
        "v": "return the new number",
        "t": "return the TTL that remains",
        "c": "return the cas unique",
        **_CAS,
        **_KEY,
        **_ALL,
        **_PATH,
    },
    "me": dict(_KEY),
}
"""For each meta command its flags, with their token in brackets, and what they mean."""

_RETURNED = {
    "b": "key in base64",
    "c": "cas {}",
    "f": "flags {}",
    "k": "key {}",
    "l": "last access {} s ago",
    "O": "opaque {}",
    "s": "size {}",
    "W": "won: recache it",
    "X": "stale",
    "Z": "another client recaches it",
}


def reply_flag(word: str) -> str:
    """Return in words what a flag of a reply such as ``t60`` says."""
    letter, token = word[:1], word[1:]
    match letter, token:
        case "t", "-1":
            return "no TTL"
        case "t", _:
            return f"TTL {token} s"
        case "h", "0":
            return "not hit before"
        case "h", _:
            return "hit before"
    known = _RETURNED.get(letter)
    return word if known is None else known.format(token)
