"""The file of a profile."""

import pytest

from surecast.errors import ScenarioError
from surecast.profile import load_profile
from surecast.profile.profile_file import profile_text

TEXT = """
surecast-profile: 1
name: mosquitto
machine: {processor: EPYC, cores: 2, memory: 8GB}
costs:
  message: {estimate: 12us, low: 10us, high: 13us}
  sent_byte: 0.3ns
memory: {connection: 4kB}
overload: 40000/s
"""


def test_a_profile_reads_back_as_it_was_written(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(TEXT)
    profile = load_profile(path)
    assert profile.costs.message.high == pytest.approx(13e-6)
    assert profile.costs.sent_byte.low == pytest.approx(3e-10)
    assert profile.memory.connection.estimate == 4000.0
    again = tmp_path / "again.yaml"
    again.write_text(profile_text(profile))
    assert load_profile(again) == profile


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("surecast-profile: 1", "surecast-profile: 2", "surecast-profile"),
        ("12us", "12", "no unit"),
        ("low: 10us", "low: 14us", "outside its interval"),
        ("sent_byte", "sent_bytes", "did you mean sent_byte?"),
        ("name: mosquitto\n", "", "name: is missing"),
        ("4kB", "never", "not a size"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, old, new, words):
    path = tmp_path / "p.yaml"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(ScenarioError, match=r"p\.yaml") as error:
        load_profile(path)
    assert words in str(error.value)


def test_a_file_that_is_not_there_says_how_to_make_one(tmp_path):
    with pytest.raises(ScenarioError, match="surecast calibrate"):
        load_profile(tmp_path / "none.yaml")
