"""What a report says of learning histories: every run counts, and only runs that are alike share a row."""

import json
import re

from cluster.report.panels.histories import panel
from cluster.runs.run_data import Run


def told(folder, name, learner, returns, episodes):
    """A run that has these results."""
    place = folder / name / "stages/histories"
    place.mkdir(parents=True)
    told = {"learner": learner, "return": returns, "episodes": episodes}
    (place / "results.json").write_text(json.dumps(told))
    return Run(folder / name, {}, {}, {}, [], [], {})


def rows_of(page):
    """Cells of the table, row by row, without its head."""
    rows = re.findall(r"<tr>(.*?)</tr>", page)[1:]
    return [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in rows]


def test_runs_of_other_learners_or_lengths_have_rows_of_their_own(tmp_path):
    runs = [
        told(tmp_path, "a", "q", [1.0, 2.0, 3.0], 300),
        told(tmp_path, "b", "q", [3.0, 4.0, 5.0], 300),
        told(tmp_path, "c", "expert", [7.0, 8.0, 9.0], 200),
        told(tmp_path, "d", "q", [0.5, 0.25], 20),
    ]
    assert rows_of(panel(runs, {"": runs[:3], "short": runs[3:]})) == [
        ["all runs", "q", "600", "2.00", "3.00", "4.00"],
        ["all runs", "expert", "200", "7.00", "8.00", "9.00"],
        ["short", "q", "20", "0.50", "0.25", "–"],
    ]


def test_where_there_are_no_histories_nothing_is_said(tmp_path):
    run = Run(tmp_path, {}, {}, {}, [], [], {})
    assert panel([run], {"": [run]}) == ""
