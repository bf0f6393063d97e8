"""The log: one line an event, whatever is in it, and whatever becomes of the stream."""

import io
import json
import logging
import os
import threading
import warnings

import pytest

from embershard.serving.server_process import logs
from embershard.serving.server_process.logs import DescriptorStream, EventLog, LogRecords
from tests.serving.blocked_pipe import PIPE_BYTES, fill, small_pipe

NEW_YEAR = 1_767_225_600.25
WAIT_SECONDS = 60
HOSTILE = 'a"b\\c\nd\r\t\x1b[31m\x00\x7f\x85\u2028\u202e\ud800\U000e0001é end'


def lines(*, as_json=False, write):
    stream = io.BytesIO()
    log = EventLog(stream, as_json=as_json, wall=lambda: NEW_YEAR)
    write(log)
    log.close(WAIT_SECONDS)
    text = stream.getvalue().decode()
    assert text.endswith("\n")
    return text[:-1].split("\n")


def test_plain_lines_have_time_event_and_fields():
    fields = {"model": "ranker", "version": 3, "address": "[::1]:5", "none": "", "share": 0.5}
    assert lines(write=lambda log: log.write("listening", fields)) == [
        "2026-01-01T00:00:00.250Z listening model=ranker version=3 address=[::1]:5 share=0.5"
    ]


def test_json_lines_are_objects_with_every_field():
    fields = {"model": "ranker", "version": 3, "none": ""}
    (line,) = lines(as_json=True, write=lambda log: log.write("listening", fields))
    assert json.loads(line) == {
        "time": "2026-01-01T00:00:00.250Z",
        "event": "listening",
        "model": "ranker",
        "version": 3,
        "none": "",
    }


@pytest.mark.parametrize("as_json", [False, True], ids=["plain", "json"])
def test_foreign_text_stays_within_its_line_and_reads_back(as_json):
    (line,) = lines(as_json=as_json, write=lambda log: log.write("e", {"x": HOSTILE, "y": "last"}))
    assert line.isprintable()
    if as_json:
        assert json.loads(line)["x"] == HOSTILE
    else:
        quoted = line.removeprefix("2026-01-01T00:00:00.250Z e x=").removesuffix(" y=last")
        assert json.loads(quoted) == HOSTILE


def test_a_text_cannot_pass_for_another_field():
    (line,) = lines(write=lambda log: log.write("e", {"x": "1 code=OK", "y": "a=b"}))
    assert line.endswith(' e x="1 code=OK" y="a=b"')


@pytest.mark.parametrize("as_json", [False, True], ids=["plain", "json"])
def test_long_texts_are_cut(as_json):
    (line,) = lines(as_json=as_json, write=lambda log: log.write("e", {"x": "y" * 5000}))
    assert line.count("y") == 1000
    assert "yyy..." in line


class Refusing(io.BytesIO):
    """A stream that refuses the first writes."""

    def __init__(self, *, refused):
        super().__init__()
        self.refused = refused

    def write(self, data):
        if self.refused:
            self.refused -= 1
            raise OSError("no space left on device")
        return super().write(data)


def test_lines_that_the_stream_refuses_are_counted_in_the_next():
    stream = Refusing(refused=3)
    log = EventLog(stream, wall=lambda: NEW_YEAR)
    for _ in range(3):
        log.write("lost", {})
    log.write("written", {"x": 1})
    log.write("later", {})
    log.close(WAIT_SECONDS)
    assert [line.split(" ", 1)[1] for line in stream.getvalue().decode().splitlines()] == [
        "written x=1 lines_lost=3",
        "later",
    ]
    assert log.lines_dropped == 3


class Blocked(io.BytesIO):
    """A stream that blocks until the test releases it."""

    def __init__(self):
        super().__init__()
        self.entered, self.go_on = threading.Event(), threading.Event()

    def write(self, data):
        self.entered.set()
        assert self.go_on.wait(WAIT_SECONDS)
        return super().write(data)


def test_lines_beyond_the_queue_are_counted_in_the_next():
    stream = Blocked()
    log = EventLog(stream, wall=lambda: NEW_YEAR)
    log.write("first", {})
    assert stream.entered.wait(WAIT_SECONDS)
    for number in range(logs.LINES_MAX + 5):  # None of these waits for the reader.
        log.write("queued", {"number": number})
    assert log.lines_dropped == 5
    stream.go_on.set()
    while log._events.qsize():  # Waits a moment until the reader has emptied the queue.
        os.sched_yield()
    log.write("after", {})
    log.close(WAIT_SECONDS)
    results = [line.split(" ", 1)[1] for line in stream.getvalue().decode().splitlines()]
    assert results[0] == "first"
    assert results[1:-1] == [f"queued number={number}" for number in range(logs.LINES_MAX)]
    assert results[-1] == "after lines_lost=5"


def test_closing_waits_for_a_blocked_reader_up_to_its_timeout():
    stream = Blocked()
    log = EventLog(stream)
    log.write("first", {})
    log.close(timeout_seconds=0.01)
    assert stream.getvalue() == b""
    log.write("behind", {})  # The log is closed, so the line is dropped.
    assert log.lines_dropped == 1
    stream.go_on.set()


def test_a_non_blocking_descriptor_gets_whole_lines():
    with small_pipe() as (reading, writing):
        fill(writing)
        os.set_blocking(writing, False)
        writer = threading.Thread(target=DescriptorStream(writing).write, args=(b"x" * 9000,))
        writer.start()
        result = b""
        while len(result) < PIPE_BYTES + 9000:
            result += os.read(reading, 65536)
        writer.join(WAIT_SECONDS)
    assert result == b"." * PIPE_BYTES + b"x" * 9000


def test_what_libraries_log_becomes_events():
    def write(log):
        handler = LogRecords(log)
        try:
            raise RuntimeError("broken\non purpose")
        except RuntimeError:
            logger = logging.Logger("elsewhere")
            logger.addHandler(handler)
            logger.exception("cannot %s", "go on")
            logger.info("of no matter")

    (line,) = lines(as_json=True, write=write)
    said = json.loads(line)
    assert (said["event"], said["logger"], said["message"]) == (
        "error",
        "elsewhere",
        "cannot go on",
    )
    assert said["trace"].endswith("RuntimeError: broken\non purpose")


def test_a_malformed_log_call_is_logged_as_it_stands():
    def write(log):
        logger = logging.Logger("elsewhere")
        logger.addHandler(LogRecords(log))
        logger.error("%d of %d", 1)

    (line,) = lines(as_json=True, write=write)
    assert json.loads(line)["message"] == "%d of %d"


@pytest.fixture
def libraries_report_as_before():
    hook = threading.excepthook
    yield
    logging.captureWarnings(False)
    threading.excepthook = hook
    ours = [handler for handler in logging.root.handlers if isinstance(handler, LogRecords)]
    for handler in ours:
        logging.root.removeHandler(handler)


@pytest.mark.usefixtures("libraries_report_as_before")
def test_warnings_and_exceptions_that_end_a_thread_become_events():
    def write(log):
        logs.redirect_library_logs(log)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(True)
            warnings.warn("soon gone", DeprecationWarning, stacklevel=1)
        broken = threading.Thread(target=lambda: 1 / 0, name="broken")
        broken.start()
        broken.join()

    warning, ended = map(json.loads, lines(as_json=True, write=write))
    assert (warning["event"], warning["logger"]) == ("warning", "py.warnings")
    assert "DeprecationWarning: soon gone" in warning["message"]
    assert (ended["event"], ended["message"]) == ("error", "the thread broken has ended")
    assert ended["trace"].endswith("ZeroDivisionError: division by zero")
