from __future__ import annotations

import numpy as np

from dexloop.report.audit import rates_figure, traces_figure
from tests.report.runs import row, traces


def test_bars_are_the_rates_of_each_round():
    rows = [row(1, number=0, signature="dropped"), row(2, number=0, signature="held"), row(1)]
    (axes,) = rates_figure(rows).axes
    heights = [bar.get_height() for bar in axes.patches]
    np.testing.assert_allclose(heights, [75, 50, 75, 100])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["guess", "round 1"]


def test_a_channel_that_parted_is_marked_where_it_did():
    panels = traces_figure(traces(), row(1, parted=True)).axes
    assert len(panels) == 5
    marked = [axes for axes in panels if any(line.get_linestyle() == "--" for line in axes.lines)]
    assert [axes.get_title() for axes in marked] == ["force on all fingers [N]"]
    (mark,) = [line for line in marked[0].lines if line.get_linestyle() == "--"]
    assert mark.get_xdata()[0] == 0.5


def test_efforts_that_nobody_measured_are_an_empty_panel():
    arrays = traces()
    arrays["effort.real"] = np.full_like(arrays["effort.real"], np.nan)
    panels = traces_figure(arrays, row(1)).axes
    assert np.isnan(panels[3].lines[1].get_ydata()).all()
    assert all(np.isfinite(axes.lines[1].get_ydata()).all() for axes in panels[:3])


def test_the_force_that_is_drawn_is_that_of_all_fingers():
    axes = next(a for a in traces_figure(traces(), row(1)).axes if a.get_title().startswith("force"))
    real = axes.lines[1].get_ydata()
    np.testing.assert_allclose(real, traces()["force.real"].sum(axis=1))
