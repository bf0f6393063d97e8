"""The command line: `embershard data | train | calibrate | export | plan | fetch | inspect |
verify | sign | triton-config | serve | label | load | unload | predict | score | vectors |
skew | explain | bench`.

Flags are read only here and in `commands/`, and so is the environment, with two exceptions: ranks
read what torchrun set, and data reads ``EMBERSHARD_CACHE``. All else is an argument of the library.
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
"""What EMBERSHARD_ISA may name: the widest that is used."""

PRINT_RESULTS = {"bench", "explain", "inspect", "plan", "predict", "skew", "verify"}
"""Commands whose result is what they print."""

EXTRAS = {"fbgemm_gpu": "cpu", "torchmetrics": "cpu", "pyarrow": "parquet"}
"""Modules that a server is installed without, and the extra that installs each."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: without the program's name. None: those of the process.

    Returns:
        0; 1 if the command failed with a message on standard error; 3 if `bench --slo` found no
        rate that meets the objective, or `skew --fail-above` a larger drift; 130 after Ctrl-C, 143
        after SIGTERM, 129 after SIGHUP; 141 if the reader closed standard output, as `head` does.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # What gRPC logs, our messages say.
    args = parser().parse_args(arguments)
    signals = StopSignals()
    try:
        _check_instruction_set(os.environ.get("EMBERSHARD_ISA", ""))
        _check_output(args.command)
        args.signals = signals  # `train` ends itself after SIGTERM.
        with signals:
            status = args.run(args) or 0
        print(end="", flush=True)  # What fails at exit would be a traceback.
    except BrokenPipeError:
        _drop_output()
        return 141
    except KeyboardInterrupt as interrupt:
        return _failed(args, interrupt, str(interrupt) or signals.words, signals.exit_code)
    except Exception as error:
        if signals.received is not None:
            return _failed(args, error, signals.words, signals.exit_code)
        if isinstance(error, ModuleNotFoundError):
            missing = (error.name or "").partition(".")[0]
            if missing not in EXTRAS:
                raise
            extra = EXTRAS[missing]
            said = f"it needs {missing}, which is not installed: pip install 'embershard[{extra}]'"
        elif isinstance(error, EmbershardError | OSError | MemoryError):
            said = f"{type(error).__name__}: {error}"
        else:
            raise
        return _failed(args, error, said, 1)
    return _end(args, status)


def _check_instruction_set(name: str) -> None:
    """`InputError`: a mistyped one, with which everything would be used."""
    if name and name not in INSTRUCTION_SETS:
        expected = " or ".join(INSTRUCTION_SETS)
        raise InputError(f"EMBERSHARD_ISA: expected {expected}, got {name!r}")


def _check_output(command: str) -> None:
    """`InputError`: standard output is closed, of which Python drops all that is printed."""
    if command in PRINT_RESULTS and sys.stdout is None:
        raise InputError("standard output: expected a file, a pipe or /dev/null, got a closed one")


def _failed(args: argparse.Namespace, error: BaseException, said: str, status: int) -> int:
    """Says why a command ends; of several ranks once."""
    _drop_output()
    if _is_rank(args):
        for number in (signal.SIGINT, signal.SIGTERM):  # torchrun ends all ranks once one has.
            signal.signal(number, signal.SIG_IGN)
        said = args.ranks.final_message(error, said)
    if said:
        print(f"embershard {args.command}: {said}", file=sys.stderr)
    return _end(args, status)


def _end(args: argparse.Namespace, status: int) -> int:
    """The exit status. A rank of several ends here: an interpreter that winds up would wait for
    collectives that never end, or be aborted by their threads."""
    if _is_rank(args):
        sys.stderr.flush()
        os._exit(status)
    return status


def _is_rank(args: argparse.Namespace) -> bool:
    ranks = getattr(args, "ranks", None)
    return ranks is not None and ranks.env is not None


def _drop_output() -> None:
    """Drops what standard output does not take, which Python would try again at exit."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Command(Parser):
    """Takes options before, between and behind the others, where argparse wants these together.
    What it does not know it refuses itself, by its own name."""

    _inside = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # `parse_known_intermixed_args` calls this method, and takes no commands of commands.
        if self._inside or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._inside = True
        try:
            given, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._inside = False
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown)}")
        return given, unknown

    def _meant(self, unknown: Sequence[str]) -> str:
        """The flags that are most like the unknown ones."""
        names = [each.partition("=")[0] for each in unknown if each.startswith("--")]
        close = [get_close_matches(each, self._option_string_actions, n=1) for each in names]
        found = " ".join(each[0] for each in close if each)
        return found and f"; did you mean {found}?"


def parser() -> argparse.ArgumentParser:
    """Every command and flag, each command with the function that runs it as ``run``."""
    program = Parser(
        prog="embershard", description="Train, export, serve and ask recommendation models."
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
