"""A secret among the words of a command or in a configuration on disk: refused, and repeated by no message."""

import pytest
import yaml

from cluster.cli.llm_verbs import label
from cluster.config import tree as configuration
from cluster.config.members import plan
from llm_service import settings
from llm_service.errors import UsageError

SECRET = "gsk_Planted8f3a1c0006"
HOSTED = ["llm=openai", "llm.model=m"]
WORDS = {
    f"llm.headers.X-Auth={SECRET}": "llm.headers.X-Auth",
    f"llm.headers={{Authorization: Bearer {SECRET}}}": "llm.headers.Authorization",
    f"llm.query.key={SECRET}": "llm.query.key",
    f"llm.body.api_key={SECRET}": "llm.body.api_key",
    f"llm.body={{user: {{token: [{SECRET}]}}}}": "llm.body.user",
    f"llm.body_env.key={SECRET}": "llm.body_env.key",
    f"llm.api_key_env={SECRET}": "llm.api_key_env",
    f"llm.redis.password_env={SECRET}": "llm.redis.password_env",
    f"llm.base_url=https://me:{SECRET}@host/v1": "llm.base_url",
    f'llm.base_url="https://host/v1?key={SECRET}"': "llm.base_url",
    f"llm.redis.url=http://:{SECRET}@host": "llm.redis.url",
    # Words that cannot be read at all
    f"llm.headers=Bearer {SECRET}(": "llm.headers",
    f"+llm.query.key={SECRET}": "llm.query.key",
    f"llm.body.key=${{{SECRET}}}": "llm.body.key",
    f"llm.headers.Authorization: {SECRET}": "llm.headers.Authorization",
    f"llm.body.key={SECRET},b": "llm.body.key",
}


def refused(action, *arguments):
    with pytest.raises(UsageError) as raised:
        action(*arguments)
    assert raised.value.exit_code == 2
    assert "\n" not in str(raised.value)
    assert SECRET not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("word", WORDS)
def test_a_secret_in_a_word_is_named_and_not_repeated(word):
    assert WORDS[word] in refused(configuration.compose, [*HOSTED, word])
    refused(settings.parse, ["name=openai", "model=m", word.removeprefix("llm.")])


@pytest.mark.parametrize("word", [f"llm.headers.X-Auth={SECRET}", f"llm.headers=Bearer {SECRET}("])
def test_whatever_reads_words_does_not_repeat_one(word, tmp_path):
    words = [*HOSTED, word, f"run.folder={tmp_path}"]
    for action, *arguments in (
        (configuration.update, configuration.compose(HOSTED), [word]),  # resume and eval
        (plan, [*words, "seed=0,1"]),  # sweep
        (label, "yes_no", tmp_path / "in", tmp_path / "out", words, tmp_path / "labels", False),
    ):
        assert WORDS[word] in refused(action, *arguments), action
    assert not list(tmp_path.iterdir())


def test_a_secret_in_a_saved_configuration_is_named_with_its_file_and_not_repeated(tmp_path):
    """As a run of before would have it: report, compare and resume read it."""
    path = tmp_path / "config.yaml"
    configuration.save(configuration.compose(HOSTED), path)
    tree = yaml.safe_load(path.read_text())
    tree["llm"]["headers"] = {"X-Auth": SECRET}
    path.write_text(yaml.safe_dump(tree))
    assert f"(in {path})" in refused(configuration.load, path)
