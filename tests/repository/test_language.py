"""Text and identifiers use the standard terms; the list of files that do not only shrinks."""

import pytest

from tests.cases import cases
from tests.repository.language import exempt, faults, faults_of_files, phrases


@pytest.fixture(scope="module")
def found():
    return faults_of_files()


def test_files_use_the_standard_terms(found):
    new = [fault for name, each in found.items() if name not in exempt() for fault in each]
    assert new == []


def test_every_exempt_file_still_needs_its_exemption(found):
    clean = [name for name in exempt() if name not in found]
    assert clean == [], "run python -m tests.repository.language"


def test_the_exempt_list_is_sorted_and_has_no_duplicates():
    assert exempt() == sorted(set(exempt()))


def test_no_standard_term_is_itself_listed():
    assert [term for term in phrases().values() if faults("terms.md", term)] == []


@cases(
    "text",
    {
        "camel-case": "class {}Runner:",
        "snake-case": "self.{}_runner = 1",
        "over-two-lines": "the {}\n# runner of a batch",
        "prose": "`{} runner`",
    },
)
def test_a_phrase_is_found(text):
    word = "due"
    text = text.format(word.capitalize() if "class" in text else word)
    assert faults("a.py", text) == [f"a.py: '{word} runner': write 'batch executor'"]


def test_a_phrase_inside_longer_words_is_not_found():
    assert faults("a.py", "residue runners") == []
