"""One Markdown table of what bench.py measured, with the goal of each row.

    table.py results.jsonl
"""
import json
import re
import statistics
import sys

# Rows whose name matches, how often the reference's rate ours must be, what the
# reference is, and which part of the pinned-copy rate will do as well. Writes must
# not take more processor time than the reference's, either.
GOALS = (
    (r"^cold file, pass 1$", 0.9, ("O_DIRECT reads", "buffered reads"), None),
    (r"^cold file, pass [2-9]$", 0.9, ("culvert, warm",), None),
    (r"^cold file, eight readers$", 1.2, ("libcufile",), None),
    (r"^fio (rand)?read", 1.2, ("libcufile",), 0.85),
    (r"write", 1.0, ("libcufile",), None),
    (r"^NIXL GDS_MT read 16384", 1.05, ("libcufile",), None),
    (r"^NIXL GDS_MT read 1024", 1.5, ("libcufile",), None),
    (r"^NIXL GDS_MT read 64", 2.0, ("libcufile",), None),
    (r"^load .*, first$", 1.15, ("instanttensor-mmap", "instanttensor"), None),
    (r"^load .*, later$", 1.15, ("instanttensor-mmap", "instanttensor"), 0.88),
    (r"^1 MiB, 8 callers", 0, (), 0.80),
    (r"^1 MiB, 16 callers", 0, (), 0.86),
)


def read(path):
    """rows[row][who] = {"rates", "first", "cpu", "error", "iops"}, in the order measured."""
    rows = {}
    with open(path) as f:
        for line in f:
            entry = json.loads(line)
            cell = rows.setdefault(entry["row"], {}).setdefault(entry["who"], {"rates": [], "first": [], "cpu": [], "iops": [], "error": ""})
            cell["rates"] += entry["rates"]
            for key in ("first", "cpu", "iops"):
                if entry.get(key) is not None:
                    cell[key].append(entry[key])
            cell["error"] = entry.get("error", cell["error"])
    return rows


def rate(cell):
    return statistics.median(cell["rates"]) if cell and cell["rates"] else None


def processor(row):
    """Our processor time as a multiple of NVIDIA's."""
    ours, theirs = (statistics.median(row.get(who, {}).get("cpu") or [0]) for who in ("culvert", "libcufile"))
    return ours / theirs if theirs else 0


def spread(values):
    if len(values) < 2:
        return f"{values[0]:.3g}"
    return f"{statistics.median(values):.3g} ({min(values):.3g}–{max(values):.3g})"


def goal(rows, row, link):
    """The ratio, the part of the link, and whether the goal is met."""
    ours = rate(rows[row].get("culvert"))
    for pattern, factor, references, part in GOALS:
        if ours is None or not re.search(pattern, row):
            continue
        among = dict(rows[row])
        among["culvert, warm"] = rows.get("cold file, warm", {}).get("culvert")
        known = [r for r in (rate(among.get(who)) for who in references) if r]
        ratio = ours / max(known) if known else None
        of_link = ours / link if link else None
        wanted = " or ".join(text for text in (f"{factor:g} ×" if factor else "", f"{part:g} of the link" if part else "") if text)
        cheap = "write" not in row or processor(rows[row]) <= 1
        met = cheap and bool((ratio and factor and ratio >= factor) or (of_link and part and of_link >= part))
        return ratio, of_link, wanted, "yes" if met else "no"
    return None, ours / link if ours and link else None, "", ""


def line(rows, row, who, link):
    cell = rows[row][who]
    ratio, of_link, wanted, met = goal(rows, row, link) if who == "culvert" else (None, None, "", "")
    figure = spread(cell["rates"]) if cell["rates"] else ""
    cells = [
        row, who, cell["error"] or figure, spread(cell["first"]) if cell["first"] else "",
        spread(cell["cpu"]) if any(cell["cpu"]) else "", f"{statistics.median(cell['iops']):.3g}" if cell["iops"] else "",
        f"{ratio:.2f}" if ratio else "", f"{of_link:.2f}" if of_link else "", wanted, met,
    ]
    return "| " + " | ".join(c.replace("|", "/").replace("\n", " ") for c in cells) + " |"


def table(path):
    rows = read(path)
    link = rate(rows.get("pinned copy", {}).get("link"))
    head = ["work", "by", "GB/s", "first GB/s", "CPU s/GB", "operations/s", "ratio", "of the link", "goal", "met"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += [line(rows, row, who, link) for row in rows for who in rows[row]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(sys.argv[1]), end="")
