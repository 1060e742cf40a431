"""Known formats of strings, as patterns (RFC 3339, 4122, 2673, 4291, 1123, 5321, 3986). Others are
left alone, as the standard has it."""

_LEAP = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_DAY = r"(0[1-9]|1[0-9]|2[0-8])"
_DATE = rf"([0-9]{{4}}-((0[1-9]|1[0-2])-{_DAY}|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)" \
        rf"|{_LEAP}-02-29)"  # fmt: skip
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)([.][0-9]{1,9})?" \
        r"([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"  # fmt: skip
_BYTE = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}([.]{_BYTE}){{3}}"
_H = "[0-9a-fA-F]{1,4}"
_LAST = rf"({_H}:{_H}|{_IPV4})"
_IPV6 = "|".join([
    rf"({_H}:){{6}}{_LAST}", rf"::({_H}:){{5}}{_LAST}", rf"({_H})?::({_H}:){{4}}{_LAST}",
    *(rf"(({_H}:){{0,{n}}}{_H})?::({_H}:){{{4 - n}}}{_LAST}" for n in range(1, 4)),
    rf"(({_H}:){{0,4}}{_H})?::{_LAST}", rf"(({_H}:){{0,5}}{_H})?::{_H}",
    rf"(({_H}:){{0,6}}{_H})?::",
])  # fmt: skip
_LABEL = r"[0-9A-Za-z]([-0-9A-Za-z]{0,61}[0-9A-Za-z])?"
_HOST = rf"{_LABEL}([.]{_LABEL})*"
_ATOM = r"[-A-Za-z0-9!#$%&'*+/=?^_`{|}~]+"
_HEX = "[0-9a-fA-F]"
_URI = r"[-A-Za-z0-9._~:/?#@!$&'()*+,;=]|%[0-9a-fA-F]{2}"
_SPAN = r"([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
_DAYS = r"([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"

FORMATS = {name: f"^({text})$" for name, text in {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}[tT ]{_TIME}",
    "duration": rf"P({_DAYS}(T{_SPAN})?|T{_SPAN}|[0-9]+W)",
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uuid": rf"{_HEX}{{8}}(-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
    "hostname": _HOST,
    "email": rf"{_ATOM}([.]{_ATOM})*@{_HOST}",
    "uri": rf"[A-Za-z][-A-Za-z0-9+.]*:({_URI})*",
}.items()}  # fmt: skip
