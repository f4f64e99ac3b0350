"""Cairn's command line: one function a verb. `python launch.py` alone prints an overview."""

import sys
from pathlib import Path
from typing import Annotated

ROOT = Path(__file__).resolve().parent
try:
    import typer

    from cluster.cli.ask.verb import ask
    from cluster.cli.export import export
    from cluster.cli.import_verbs import imports
    from cluster.cli.judge import judge
    from cluster.cli.llm_verbs import llm
    from cluster.cli.terminal import finish, guard, print_overview, print_tree, run_folder
except ImportError as missing:
    print(f"error: {missing}: install requirements.txt, and keep {ROOT} first on PYTHONPATH", file=sys.stderr)
    sys.exit(2)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.add_typer(llm, name="llm")
app.add_typer(imports, name="import")

Words = Annotated[list[str] | None, typer.Argument(metavar="[GROUP=NAME|KEY=VALUE]", show_default=False)]
Run = Annotated[str, typer.Argument(metavar="RUN", help="Name of a run, or the path of its folder.")]
AnyRun = Annotated[str | None, typer.Argument(metavar="RUN", show_default=False)]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Members of a sweep to run at once.")]
AllowChange = Annotated[bool, typer.Option("--allow-change", help="Accept a changed experiment.")]
Check = Annotated[bool, typer.Option("--check", help="Only name those that died or stalled, with exit code 1.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would start, and exit.")]


@app.callback(invoke_without_command=True)
def overview(context: typer.Context) -> None:
    """Cairn: language-guided reinforcement learning on Ray and PyTorch."""
    if context.invoked_subcommand is None:
        print_overview(app)


@app.command()
def run(
    words: Words = None,
    cfg: Annotated[bool, typer.Option("--cfg", help="Print the configuration with sources, and exit.")] = False,
    dry_run: DryRun = False,
    list_envs: Annotated[bool, typer.Option("--list-envs", help="Print the id of every env, and exit.")] = False,
    multirun: Annotated[bool, typer.Option("--multirun", "-m", help="The same as the verb sweep.")] = False,
    jobs: Jobs = None,
) -> None:
    """Run an experiment: train, evaluate, and keep everything in one folder."""
    if list_envs:
        from envs import registry

        return print("\n".join(registry.ids()))
    if multirun:
        return sweep(words, jobs, dry_run or cfg)
    from cluster.cli import start
    from cluster.config import tree, unread

    config, provenance = unread.tell(*tree.explain(words or []))
    if cfg:
        return print_tree(tree.render(config, provenance, unread.foreign))
    if dry_run:
        return print(start.dry_run(config))
    config = tree.named(config)
    finish(lambda _: start.run(config), Path(config.run.folder) / config.run.name)


@app.command()
def resume(run: Run, words: Words = None, allow_change: AllowChange = False) -> None:
    """Continue a run from its last checkpoint, counters included."""
    from cluster.cli import start

    finish(lambda folder: start.resume(folder, words or [], allow_change), run_folder(run))


@app.command(name="eval")
def evaluate(run: Run, words: Words = None) -> None:
    """Evaluate a run again on held-out seeds."""
    from cluster.run import evaluate as evaluate_run

    finish(lambda folder: evaluate_run(folder, words or []), run_folder(run))


@app.command()
def status(run: AnyRun = None, folder: str = "runs", check: Check = False) -> None:
    """Show all runs, or one."""
    from cluster.cli.status import print_status

    raise typer.Exit(print_status(Path(folder), run, check))


@app.command()
def stop(run: Run) -> None:
    """Ask a run to stop at a checkpoint; it can be resumed."""
    from cluster.cli.status import request_stop

    request_stop(run_folder(run))


@app.command()
def logs(run: Run, follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing.")] = False) -> None:
    """Print a run's log."""
    from cluster.cli.status import print_logs

    print_logs(run_folder(run), follow)


@app.command()
def compare(first: Run, second: Run) -> None:
    """Compare the configurations and results of two runs."""
    from cluster.report.compare import compare as compare_runs

    compare_runs(run_folder(first), run_folder(second))


@app.command()
def report(runs: Annotated[list[str], typer.Argument(metavar="RUN...")]) -> None:
    """Write one self-contained HTML page about runs."""
    from cluster.report.document import write

    print(write([run_folder(run, sweeps=True) for run in runs]))


@app.command()
def doctor(folder: Annotated[str, typer.Option(help="Where runs will be written.")] = "runs") -> None:
    """Check this machine and checkout, and say how to fix what is wrong."""
    from cluster.cli.doctor import examine

    raise typer.Exit(examine(Path(folder)))


@app.command()
def sweep(words: Words = None, jobs: Jobs = None, dry_run: DryRun = False) -> None:
    """Run each combination of values, as in seed=0..4 actors.n=2,4."""
    from cluster.cli.sweep import sweep as run_sweep

    raise typer.Exit(run_sweep(words or [], jobs, dry_run))


for verb in (ask, judge, export):
    app.command()(verb)
if __name__ == "__main__":
    guard(app, checkout=ROOT)
