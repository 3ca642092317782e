"""What a replay run refuses before it begins, how it judges a tie, and what its plot shows."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.replay.bars import judge
from bench.replay.command import main
from bench.replay.contenders import COLUMN_COSTS, NEURAL_TOKENS
from bench.replay.report import ALL, Line, figure_of, plot
from bench.replay.tasks import KINDS

LINE = Line(
    drafter="",
    role="peer",
    tuned_for=None,
    neural=0,
    width=15,
    kind=ALL,
    output_tokens=100,
    passes=20,
    drafted_tokens=100,
    accepted_tokens=80,
    tokens_per_pass=5.0,
    waste_per_token=0.2,
    speed_002=4.0,
    speed_007=3.0,
    speed_02=2.0,
    speed_05=1.0,
    proposal_us_median=1.0,
    proposal_us_p99=2.0,
    duplicate_share=0.1,
)


def lines() -> list[Line]:
    """A run in which every drafter reaches the same everywhere."""
    made = []
    for kind in (*KINDS, ALL):
        for width in (15, 63):
            of_width = replace(LINE, kind=kind, width=width)
            made.append(replace(of_width, drafter=f"hindsight oracle/{width}", role="oracle"))
            for neural in (0, NEURAL_TOKENS):
                suffix = f"suffix decoding 4x/{width}"
                made.append(replace(of_width, drafter=suffix, neural=neural))
                for cost in COLUMN_COSTS:
                    name = f"ninfer adaptive/{width}"
                    ours = replace(of_width, drafter=name, role="ninfer", neural=neural)
                    made.append(replace(ours, tuned_for=cost))
    return made


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--tasks=0"], "--tasks 0 is out of range"),
        (["--tasks=3", "--quick"], "give it or --tasks, not both"),
        (["--plot=x.pdf"], "--plot x.pdf must end in .svg or .png"),
        (["--csv=/nowhere/x.csv"], "--csv /nowhere/x.csv cannot be written: No such file"),
        (["--plot=/nowhere/x.svg"], "--plot /nowhere/x.svg cannot be written: No such file"),
    ],
)
def test_what_cannot_end_well_is_refused_before_the_run(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*argv, "--model=/nowhere"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_trying_a_file_neither_leaves_nor_empties_one(tmp_path: Path) -> None:
    table, picture = tmp_path / "t.csv", tmp_path / "p.svg"
    table.write_text("kept")
    pairs = ["--pairs", "not-a-pair"]
    with pytest.raises(Exception, match="nowhere"):  # the model, which comes behind the check
        main([f"--csv={table}", f"--plot={picture}", "--model=/nowhere", *pairs])
    assert table.read_text() == "kept"
    assert not picture.exists()


def test_help_says_how_table_and_bars_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    for words in ("waste  ", "x at C  ", "suffix decoding 4x/63", "5.07"):
        assert words in shown


def test_a_tie_is_enough_only_where_nobody_can_do_better() -> None:
    against = [bar for bar in judge(lines()) if ", against " in bar.name]
    holding = [bar.name for bar in against if bar.holds]
    assert holding == ["tokens per pass, echo, width 15, against suffix decoding 4x/15"]
    behind = [
        replace(e, tokens_per_pass=4.999) if e.role == "ninfer" and e.kind == "echo" else e
        for e in lines()
    ]
    assert not any(bar.holds for bar in judge(behind) if ", against " in bar.name)


def test_oracles_look_different_and_the_legend_covers_no_curve(tmp_path: Path) -> None:
    figure = figure_of(lines())
    figure.draw_without_rendering()
    for axes in figure.axes:
        legend = axes.get_legend()
        assert legend is not None
        assert legend.get_window_extent().y1 <= axes.get_window_extent().y0
    oracles = [c for c in figure.axes[0].get_lines() if "oracle" in str(c.get_label())]
    assert len(oracles) == 2
    assert len({(c.get_color(), c.get_linestyle()) for c in oracles}) == 2
    plot(lines(), tmp_path / "p.svg")
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")
