"""The log: one line an event, whatever is in it, and whatever becomes of the stream."""

import io
import json
import logging

import pytest

from embershard.serving.logs import EventLog, LogRecords

NEW_YEAR = 1_767_225_600.25
HOSTILE = 'a"b\\c\nd\r\t\x1b[31m\x00\x7f\x85\u2028\u202e\ud800\U000e0001é end'


def lines(*, as_json=False, write):
    stream = io.StringIO()
    write(EventLog(stream, as_json=as_json, wall=lambda: NEW_YEAR))
    text = stream.getvalue()
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


class Refusing(io.StringIO):
    """A stream that takes nothing while it is full."""

    full = False

    def write(self, text):
        if self.full:
            raise OSError("no space left on device")
        return super().write(text)


def test_lines_that_the_stream_does_not_take_are_counted_in_the_next():
    stream = Refusing()
    log = EventLog(stream, wall=lambda: NEW_YEAR)
    stream.full = True
    for _ in range(3):
        log.write("lost", {})
    stream.full = False
    log.write("written", {"x": 1})
    log.write("later", {})
    assert [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()] == [
        "written x=1 lines_lost=3",
        "later",
    ]


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
