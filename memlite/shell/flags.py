"""The flags of meta commands and their meanings, for help, completion and replies."""

__all__ = ["META_FLAGS", "describe_reply_flag"]

_KEY = {"b": "the key is base64"}
_ALL = {
    "k": "return the key",
    "O(token)": "opaque: copied to the reply",
    "q": "quiet: no reply in the usual case (a miss; a success)",
}
_CAS = {"C(cas)": "only if the cas unique matches", "E(cas)": "set the cas unique"}
_PATH = {"P(token)": "ignored; for proxies", "L(token)": "ignored; for proxies"}

META_FLAGS: dict[str, dict[str, str]] = {
    "mg": {
        "v": "return the value",
        "f": "return the client flags",
        "c": "return the cas unique",
        "s": "return the value's size",
        "t": "return the remaining TTL in seconds; -1: none",
        "h": "return whether it has been hit before",
        "l": "return the seconds since its last access",
        "u": "do not count this as an access",
        "T(ttl)": "set the TTL",
        "N(ttl)": "on a miss, create an empty item with this TTL",
        "R(ttl)": "win the right to recache if the remaining TTL is less",
        "C(cas)": "omit the value if the cas unique matches",
        "E(cas)": _CAS["E(cas)"],
        **_KEY,
        **_ALL,
        **_PATH,
    },
    "ms": {
        "T(ttl)": "TTL in seconds (default: none)",
        "F(flags)": "client flags, a number",
        "M(mode)": "mode: S set, E add, R replace, A append, P prepend",
        "N(ttl)": "with append or prepend: on a miss, create it with this TTL",
        "I": "with C: if the given cas unique is lower, store as stale",
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
        "D(delta)": "the amount (default: 1)",
        "N(ttl)": "on a miss, create it with this TTL",
        "J(value)": "with N: the initial number (default: 0)",
        "T(ttl)": "set the TTL",
        "v": "return the new number",
        "t": "return the remaining TTL",
        "c": "return the cas unique",
        **_CAS,
        **_KEY,
        **_ALL,
        **_PATH,
    },
    "me": dict(_KEY),
}
"""The flags of each meta command, with their token in parentheses, and their meanings."""

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
    "Z": "another client is recaching it",
}


def describe_reply_flag(word: str) -> str:
    """Describe a flag of a reply, such as ``t60``."""
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
