"""A language model as a player: what it is shown, what it chooses, and what it does while the model is away."""

import numpy as np
import pytest

import envs
from actors import language
from actors.evaluate import play
from actors.language import LanguageSetup
from actors.players import language_model
from actors.players.language_model import LanguageModelAway, LanguagePlayer
from llm_service.errors import AwayTooLong, BudgetExhausted, UsageError
from llm_service.records import Answer, Status


class LLMClient:
    """Scores `right` highest; the first answers to every prompt are failures, as many as told."""

    def __init__(self, *failures):
        self.failures, self.asked = failures, {}

    def score(self, prompts, names, parameters):
        return [self._answer(prompt, names) for prompt in prompts]

    def _answer(self, prompt, names):
        n = self.asked[prompt] = self.asked.get(prompt, 0) + 1
        if n <= len(self.failures):
            return Answer(self.failures[n - 1], reason="not now")
        return Answer(Status.OK, np.array([0.0 if name == "right" else -50.0 for name in names]).tobytes())


def played(client, patience_s=0.0, greedy=True, stop=False):
    env = envs.make("toy/Line", 4, 0)
    return play(env, LanguagePlayer(client, patience_s, stop), np.arange(4), greedy)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(language_model, "PAUSE_S", 0.0)


@pytest.mark.parametrize("greedy", [True, False])
def test_it_takes_the_action_whose_name_is_most_probable(greedy):
    client = LLMClient()
    played(client, 0.0, greedy)
    assert all("You chose: right." in prompt for prompt in client.asked if "You chose: " in prompt)
    assert set(client.asked.values()) <= {1, 2, 3, 4}


@pytest.mark.parametrize("failure", [Status.AWAY, Status.BUSY])
def test_a_model_that_is_away_is_asked_again_and_nothing_is_missed(failure):
    patient = played(LLMClient(failure, failure), patience_s=60.0)
    usual = played(LLMClient(), patience_s=0.0)
    assert patient.episodes.seed.tolist() == [0, 1, 2, 3]
    assert patient.episodes.total.tolist() == usual.episodes.total.tolist()


@pytest.mark.parametrize(
    ("failure", "patience_s", "error"),
    [
        (Status.AWAY, -1.0, LanguageModelAway),  # another actor may have more luck
        (Status.EXPIRED, 60.0, LanguageModelAway),
        (Status.REFUSED, 60.0, UsageError),  # none will
        (Status.MISSING, 60.0, UsageError),
        (Status.BUDGET, 60.0, BudgetExhausted),
    ],
)
def test_what_does_not_pass_ends_the_player_with_the_reason(failure, patience_s, error):
    with pytest.raises(error, match="not now"):
        played(LLMClient(*[failure] * 1000), patience_s)


@pytest.mark.parametrize("failure", [Status.AWAY, Status.BUSY, Status.EXPIRED])
def test_who_stops_while_the_model_is_away_ends_the_run_with_the_reason(failure):
    with pytest.raises(AwayTooLong, match="not now"):
        played(LLMClient(*[failure] * 1000), stop=True)


def test_only_who_shall_wait_waits():
    assert LanguageSetup("somewhere", "wait").patience_s == language.DEADLINE_S
    assert LanguageSetup("somewhere", "stop").patience_s == LanguageSetup("somewhere", "none").patience_s == 0.0
