"""An answer in words, for a terminal and for the page."""

from __future__ import annotations

from cluster.cli.ask.robot import Answer, Neighbour, Route


def told(answer: Answer) -> str:
    """The lines that `launch.py ask` prints."""
    lines = [answer.sentence, f"  places   {places(answer)}"]
    lines.append(f"  unknown  {', '.join(answer.unknown) or 'nothing: the model knows every word'}")
    lines += [f"  target   {target(answer)}", "", summary(answer)]
    for number, own in enumerate(answer.routes, 1):
        lines += [f"  route {number}: {route(answer, own)}", f"           ended: {ends(own)}"]
    lines += ["", "nearest in the archive, by text"]
    lines += [_neighbour(near) for near in answer.by_text] or ["  it has no texts"]
    lines += ["", f"nearest in the archive, by end (from {answer.measured_from})"]
    lines += [_neighbour(near) for near in answer.by_end]
    return "\n".join(lines)


def places(answer: Answer) -> str:
    """The places that are asked for, in the order of time."""
    return " → ".join(answer.places) or "it names no place of this house"


def target(answer: Answer) -> str:
    """What was done about the target."""
    if answer.target is None:
        return "left out, the model acts on the text alone"
    place = f"({answer.target[0]:g}, {answer.target[1]:g})"
    if answer.target_is == "given":
        return f"{place}, as given"
    return (
        f"{place}, predicted from the {_count(answer.alike, 'behaviour')} of the archive with the texts most like "
        "this, since the model was never fitted without a target"
    )


def summary(answer: Answer) -> str:
    """How many samples took how many routes, and how well."""
    found = answer.as_json()
    parts = [f"{_count(len(answer.pose), 'sample')}, {_count(len(answer.routes), 'route')}"]
    parts += [f"obedience {found['obedience']:.2f} of 1"] if answer.places else []
    parts += [f"{found['distance']:.0f} units from the target (median)"] if answer.target else []
    return "; ".join(parts)


def route(answer: Answer, own: Route) -> str:
    """How many samples took a route, and which places of the sentence it passes."""
    obedience = f", obedience {own.obedience:.2f}" if answer.places else ""
    none = "none of the places" if answer.places else "no place"
    return f"{_count(len(own.samples), 'sample')}{obedience}: {' → '.join(own.places) or none}"


def ends(own: Route) -> str:
    """Where the samples of a route ended."""
    return "; ".join(f"{count} at {end}" for end, count in own.ends.items())


def _neighbour(near: Neighbour) -> str:
    x, y = near.end
    where = f"ends {near.distance:.0f} units away at ({x:g}, {y:g})"
    return f"  likeness {near.likeness:.2f}, {where}: {near.text or 'no text'}"


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'s' * (number != 1)}"
