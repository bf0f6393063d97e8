"""The command line `embershard data | train | calibrate | export | plan | fetch | inspect |
verify | sign | triton-config | serve | label | load | unload | predict | score | vectors |
skew | explain | bench`.

Only this module and `commands/` read flags. The library takes settings as arguments, except the
variables of torchrun, ``EMBERSHARD_CACHE`` and ``EMBERSHARD_ISA``.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from embershard.commands import (
    Parser,
    StopSignals,
    bench,
    calibrate,
    control,
    data,
    explain,
    export,
    fetch,
    packages,
    plan,
    predict,
    score,
    serve,
    train,
    triton_config,
)
from embershard.errors import EmbershardError, InputError
from embershard.version import __version__

INSTRUCTION_SETS = ("avx2", "avx512")
"""Values of EMBERSHARD_ISA, which limits the instructions that kernels use."""

PRINT_RESULTS = {"bench", "explain", "inspect", "plan", "predict", "skew", "verify"}
"""Commands that write their result to standard output."""

EXTRAS = {"fbgemm_gpu": "cpu", "torchmetrics": "cpu", "pyarrow": "parquet"}
"""Optional Python packages, and the extra of embershard that installs each."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. ``arguments`` are without the program's name, by default the process's.

    Returns:
        0; 1 if the command failed with a message on standard error; 3 if `bench --slo` found no
        rate that meets the objective, or `skew --fail-above` a larger drift; 130 after Ctrl-C, 143
        after SIGTERM, 129 after SIGHUP; 141 if the reader closed standard output, as `head` does.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # Our own errors replace gRPC's log.
    args = parser().parse_args(arguments)
    signals = StopSignals()
    try:
        _check_instruction_set(os.environ.get("EMBERSHARD_ISA", ""))
        _check_output(args.command)
        args.signals = signals  # `train` saves a checkpoint before it ends.
        with signals:
            status = args.run(args) or 0
        print(end="", flush=True)  # If this failed at exit, Python would print a traceback.
    except BrokenPipeError:
        _drop_output()
        return 141
    except KeyboardInterrupt as interrupt:
        return _report_failure(args, interrupt, str(interrupt) or signals.words, signals.exit_code)
    except Exception as error:
        if signals.received is not None:
            return _report_failure(args, error, signals.words, signals.exit_code)
        if isinstance(error, ModuleNotFoundError):
            missing = (error.name or "").partition(".")[0]
            if missing not in EXTRAS:
                raise
            extra = EXTRAS[missing]
            install = f"pip install 'embershard[{extra}]'"
            message = f"expected the Python package {missing}, which is not installed: {install}"
        elif isinstance(error, EmbershardError | OSError | MemoryError):
            message = f"{type(error).__name__}: {error}"
        else:
            raise
        return _report_failure(args, error, message, 1)
    return _end(args, status)


def _check_instruction_set(name: str) -> None:
    """Refuse a mistyped name, which would silently set no limit."""
    if name and name not in INSTRUCTION_SETS:
        expected = " or ".join(INSTRUCTION_SETS)
        raise InputError(f"EMBERSHARD_ISA: expected {expected}, got {name!r}")


def _check_output(command: str) -> None:
    """Refuse a closed standard output, because Python would silently drop the result."""
    if command in PRINT_RESULTS and sys.stdout is None:
        raise InputError("standard output: expected a file, a pipe or /dev/null, got a closed one")


def _report_failure(
    args: argparse.Namespace, error: BaseException, message: str, status: int
) -> int:
    """If several ranks fail with the same message, one of them prints it."""
    _drop_output()
    if _is_rank(args):
        # torchrun sends these to all ranks as soon as one has ended.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        message = args.ranks.final_message(error, message)
    if message:
        print(f"embershard {args.command}: {message}", file=sys.stderr)
    return _end(args, status)


def _end(args: argparse.Namespace, status: int) -> int:
    """Return the exit status. A rank of torchrun ends immediately: a normal exit would wait for
    collectives that never end, or be aborted by their threads."""
    if _is_rank(args):
        sys.stderr.flush()
        os._exit(status)
    return status


def _is_rank(args: argparse.Namespace) -> bool:
    ranks = getattr(args, "ranks", None)
    return ranks is not None and ranks.env is not None


def _drop_output() -> None:
    """Discard buffered output that cannot be written. Python would try again at exit."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Command(Parser):
    """Allows options between positional arguments. Errors name the command."""

    _inside = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # `parse_known_intermixed_args` calls this method again, and refuses nested commands.
        if self._inside or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._inside = True
        try:
            parsed, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._inside = False
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._suggestion(unknown)}")
        return parsed, unknown

    def _suggestion(self, unknown: Sequence[str]) -> str:
        """A hint with the known flags closest to the unknown ones, or an empty text."""
        names = [word.partition("=")[0] for word in unknown if word.startswith("--")]
        close = [get_close_matches(name, self._option_string_actions, n=1) for name in names]
        flags = " ".join(matches[0] for matches in close if matches)
        return flags and f"; did you mean {flags}?"


def parser() -> argparse.ArgumentParser:
    """Each command sets ``run``, the function that runs it."""
    program = Parser(
        prog="embershard",
        description="Train, export and serve recommendation models, and request predictions.",
    )
    program.add_argument("--version", action="version", version=f"embershard {__version__}")
    commands = program.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Command
    )
    for add in (
        data.add_data,
        train.add_train,
        export.add_export,
        plan.add_plan_command,
        calibrate.add_calibrate,
        fetch.add_fetch,
        packages.add_inspect,
        packages.add_verify,
        packages.add_sign,
        triton_config.add_triton_config,
        serve.add_serve,
        control.add_label,
        control.add_load,
        control.add_unload,
        predict.add_predict,
        score.add_score,
        score.add_vectors,
        score.add_skew,
        explain.add_explain,
        bench.add_bench,
    ):
        add(commands)
    return program
