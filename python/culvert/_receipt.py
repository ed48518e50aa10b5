"""What the last load, save or attachment of a thread did."""

import os
import threading

_last = threading.local()


class Receipt(dict):
    """What a load, a save or an attachment did: bytes, times, and the route of each file with
    the reasons against better ones. A dict, which prints as one line."""

    def __str__(self):
        words = [self["op"], os.path.basename(self.get("model") or self.get("file", ""))]
        words.append(f"tensors={self['tensors']}")
        if self["op"] == "load":
            words.append(f"bytes={self['wanted_bytes']} read={self['read_bytes']}")
            if self["verified"]:
                words.append(f"verified={self['verified']}")
        else:
            words.append(f"bytes={self['bytes']}")
        words.append(f"time={self['seconds'] * 1e3:.1f}ms")
        if self["op"] != "attach":
            words.append(f"rate={self['gb_per_second']:.3g}GB/s")
        routes = sorted({f["receipt"]["route"] for f in self.get("files") or ()})
        if routes:
            words.append("route=" + ",".join(routes))
        if self.get("software_machine"):
            words.append("SOFTWARE-MACHINE")
        return " ".join(words)


def remember(receipt):
    _last.receipt = Receipt(receipt)


def last_receipt():
    """The receipt of this thread's last load, save or attachment, or None."""
    return getattr(_last, "receipt", None)
