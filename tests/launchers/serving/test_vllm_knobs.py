"""The knobs of vLLM, each by its effect on a real server: what it computes, and what its page of metrics says.

Every server takes a minute to start, and none compiles the model, which would take another.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import torch
from served_models import small_models
from transformers import AutoModelForCausalLM, PreTrainedModel

from llmexp.cli.resolvers import server_python
from llmexp.launchers.serving.client.completions import body_of, read_answers
from llmexp.launchers.serving.engines.vllm import ENGINE as VLLM
from llmexp.launchers.serving.server.process import Patience, Server
from llmexp.launchers.serving.server.reported_memory import held
from llmexp.launchers.serving.weights.model_folder import FolderRequest, ensure_model_folder
from llmexp.machine.processor import instruction_sets
from llmexp.record.port import HOST
from llmexp.serving.config.load import Sampling, ServedAdapters
from llmexp.serving.engine import ServingSpec
from llmexp.serving.plan.server_plan import ServerPlan

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.skipif(server_python("vllm") is None, reason="needs an environment with vLLM: make serve-venv"),
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),
]
DENSE, MIXTURE = small_models(
    vocab_size=300, hidden_size=64, intermediate_size=128, num_layers=2, num_heads=2, max_positions=2048
)
SERVED = ServingSpec(DENSE, "fp32", "cpu", positions=2048, requests=8)
# It begins as none of the others does, so that the cache of prefixes has nothing of it.
PROMPT = [(150 + 11 * index) % 300 for index in range(1, 129)]
PROMPTS = [[(start + 7 * index) % 300 for index in range(1, 60)] for start in range(3)]
WANTED_S = 600.0
# Of what is seen only where the server answers in time.
TRIES = 10
# Between two requests, so that they arrive in order; the first of them takes a second at the least.
APART_S = 0.1


@dataclass(frozen=True)
class Started:
    """A server, asked one request at a time."""

    plan: ServerPlan
    server: Server
    folder: Path
    adapters: Path | None

    def tokens(self, prompt: Sequence[int], count: int, number: int = 0) -> list[int]:
        """Return the ids of a request's output, token by token as users ask for it; of several answers, in turn."""
        body = body_of(self.plan.form, prompt, count, number)
        lines = self._get("POST", self.plan.form.path, body).splitlines()
        events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
        choices = [choice for event in events for choice in event["choices"]]
        return [token for choice in sorted(choices, key=itemgetter("index")) for token in choice["token_ids"]]

    def answers(self, prompt: Sequence[int], count: int, number: int = 0) -> list[Sequence[int] | None]:
        """Return the ids of each answer of a request whose answers come whole."""
        said = self._get("POST", self.plan.form.path, body_of(self.plan.form, prompt, count, number))
        return [piece.token_ids for piece in read_answers(said.encode())]

    def generate(self, prompt: Sequence[int], count: int) -> None:
        """Have so many tokens generated and sent as one answer; to send each would keep the page of metrics behind."""
        body = json.loads(body_of(self.plan.form, prompt, count)) | {"stream": False, "stream_options": None}
        self._get("POST", self.plan.form.path, json.dumps(body).encode())

    def at_once(self, asked: Sequence[tuple[Sequence[int], int]]) -> list[list[int]]:
        """Return the outputs of requests that are sent together."""
        with ThreadPoolExecutor(len(asked)) as pool:
            return list(pool.map(lambda one: self.tokens(*one), asked))

    def told(self, name: str) -> list[float]:
        """Return the values that the page has under a name, one for each engine."""
        return [float(value) for value in re.findall(rf"^vllm:{name}{{[^}}]*}} (\S+)$", self.page(), re.MULTILINE)]

    def total(self, name: str) -> float:
        """Return the sum of those values."""
        return sum(self.told(name))

    def cache(self) -> dict[str, str]:
        """Return what the page says of the KV cache."""
        found = re.search(r"^vllm:cache_config_info{(.*)} 1", self.page(), re.MULTILINE)
        assert found
        return dict(re.findall(r'(\w+)="([^"]*)"', found[1]))

    @property
    def cache_tokens(self) -> int:
        """The tokens for which the KV cache has room."""
        return int(self.cache()["num_gpu_blocks"]) * int(self.cache()["block_size"])

    def page(self) -> str:
        """Return the page of metrics."""
        return self._get("GET", "/metrics")

    def _get(self, method: str, path: str, body: bytes | None = None) -> str:
        connection = HTTPConnection(HOST, self.server.port, timeout=WANTED_S)
        try:
            connection.request(method, path, body, {"content-type": "application/json", **self.server.headers})
            response = connection.getresponse()
            text = response.read().decode()
            assert response.status == 200, text
            return text
        finally:
            connection.close()


@contextmanager
def started(cache: Path, served: ServingSpec = SERVED, **knobs: Any) -> Iterator[Started]:
    served = replace(served, knobs={"compile": False} | knobs)
    assert VLLM.unsupported(served) is None
    plan = VLLM.server(served).model_copy(update={"python": server_python("vllm")})
    wanted = FolderRequest(model=served.model, dtype=served.dtype, seed=0, weights=plan.weights)
    folder, adapters = ensure_model_folder(wanted, cache), None
    if served.adapters:
        adapters = ensure_model_folder(wanted.of_adapters(served.adapters), cache)
        plan = plan.with_adapters(adapters)
    with Server(plan, folder, cache / "server.txt") as server:
        server.wait_ready(Patience(silent_s=WANTED_S))
        yield Started(plan, server, folder, adapters)


def model_of(found: Started) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(found.folder)
    return model.eval()


def greedy(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    ids = torch.tensor([list(prompt)])
    made = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=0
    )
    return [int(token) for token in made[0, ids.shape[1] :]]


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WANTED_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def check_greedy(found: Started) -> None:
    """The server computes the folder's model."""
    model = model_of(found)
    assert [found.tokens(prompt, 24) for prompt in PROMPTS] == [greedy(model, prompt, 24) for prompt in PROMPTS]


def tokens_beside_a_long_prompt(found: Started) -> float:
    """Return how many tokens a request got while a prompt of 1024 was read; 0 where it ended before.

    The prompt takes 32 steps and more, in each of which the request that generates gets a token.
    """
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(found.generate, PROMPTS[0], 1900)
        until(lambda: found.total("num_requests_running") == 1 or asked.done())
        before = found.total("generation_tokens_total")
        found.generate([(11 * index) % 300 for index in range(1024)], 1)
        tokens = found.total("generation_tokens_total") - before
        return tokens if found.total("num_requests_running") == 1 else 0


def ended_in_order(found: Started) -> list[int]:
    """Return the numbers of tokens of four requests in the order in which they ended; the longest is sent first."""
    ended: list[int] = []

    def ask(count: int) -> None:
        found.generate(PROMPT[:8], count)
        ended.append(count)

    with ThreadPoolExecutor(4) as pool:
        for count in (1900, 600, 200, 400):
            pool.submit(ask, count)
            time.sleep(APART_S)
    return ended


def test_blocks_chunks_and_the_size_of_a_batch_are_what_is_set(tmp_path: Path) -> None:
    knobs = {"block_size": 32, "prefix_caching": True, "max_batch_tokens": 32, "max_sequences": 2}
    with started(tmp_path, **knobs) as found:
        check_greedy(found)
        assert found.cache()["block_size"] == "32"
        holds = held(VLLM.reported_memory(SERVED), {"page": found.page(), "log": ""}, found.folder)
        assert (holds.kv_cache_bytes, holds.kv_cache_tokens) == (2**30, found.cache_tokens)
        assert holds.weights_bytes == sum(one.nbytes for one in model_of(found).parameters())

        found.tokens(PROMPT, 1)
        # Of 80 tokens that two prompts share, two whole blocks are found.
        before = found.total("prefix_cache_hits_total")
        found.tokens([*PROMPT[:80], *range(200, 240)], 1)
        assert found.total("prefix_cache_hits_total") - before == 2 * 32

        assert any(tokens_beside_a_long_prompt(found) > 1024 // 32 for _ in range(TRIES))

        # Two at a time take three times the steps of one of six, and half of those that one at a time would take.
        before = found.total("iteration_tokens_total_count")
        assert [len(answer) for answer in found.at_once([(prompt, 400) for prompt in PROMPTS * 2])] == [400] * 6
        assert 3 * 399 <= found.total("iteration_tokens_total_count") - before < 4 * 400


def test_without_prefix_caching_nothing_is_found_and_the_shortest_of_the_waiting_requests_comes_first(
    tmp_path: Path,
) -> None:
    with started(tmp_path, prefix_caching=False, block_size=32, max_sequences=1, scheduling="priority") as found:
        for _ in range(2):
            found.tokens(PROMPT, 1)
        assert found.total("prefix_cache_hits_total") == 0

        # First come, first served takes 600. A try is lost where these came after the long one had ended.
        first = [next(count for count in ended_in_order(found) if count < 1900) for _ in range(TRIES)]
        assert first.count(200) >= 3, first


NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
# The model as its own draft: all that it proposes is what it would say.
ITSELF = {"method": "draft_model", "model": "{folder}", "num_speculative_tokens": 3}


@pytest.mark.parametrize(("speculative", "all_accepted"), [(NGRAM, False), (ITSELF, True)], ids=["ngram", "draft"])
def test_drafts_save_steps_and_change_no_token(tmp_path: Path, speculative: dict[str, Any], all_accepted: bool) -> None:
    with started(tmp_path, speculative=speculative) as found:
        check_greedy(found)
        drafted, accepted = (found.total(f"spec_decode_num_{what}_tokens_total") for what in ("draft", "accepted"))
        assert 0 < accepted <= drafted
        assert (accepted == drafted) == all_accepted
        assert found.total("iteration_tokens_total_count") < found.total("generation_tokens_total")


@pytest.mark.skipif("avx512f" not in instruction_sets(), reason="vLLM's cache of fp8 needs AVX-512 on a CPU")
def test_a_cache_of_fp8_has_room_for_twice_the_tokens_of_bf16(tmp_path: Path) -> None:
    served = replace(SERVED, dtype="bf16")
    with started(tmp_path, served, kv_dtype="fp8") as found:
        assert found.cache()["cache_dtype"] == "fp8"
        assert found.cache_tokens == 2 * 2**30 // served.kv_bytes_per_token
        assert [len(found.tokens(prompt, 24)) for prompt in PROMPTS] == [24] * 3


def test_a_model_that_is_cut_over_two_processes_computes_the_same_and_its_cache_is_cut_too(tmp_path: Path) -> None:
    with started(tmp_path, replace(SERVED, devices=2)) as found:
        check_greedy(found)
        assert found.cache_tokens == 2 * 2**30 // SERVED.kv_bytes_per_token


def test_two_copies_behind_one_address_share_the_requests(tmp_path: Path) -> None:
    with started(tmp_path, replace(SERVED, replicas=2)) as found:
        check_greedy(found)
        found.at_once([(prompt, 64) for prompt in PROMPTS * 4])
        generated = found.told("generation_tokens_total")
        assert len(generated) == 2
        assert min(generated) >= 64
        assert sum(generated) == 3 * 24 + 12 * 64


def test_each_adapter_computes_what_peft_does(tmp_path: Path) -> None:
    from peft import PeftModel

    with started(tmp_path, replace(SERVED, adapters=ServedAdapters(number=3, rank=4)), adapters_at_once=2) as found:
        answers = [found.tokens(PROMPT, 16, number) for number in range(6)]
        assert answers[:3] == answers[3:]
        assert found.adapters
        wanted = [
            greedy(PeftModel.from_pretrained(model_of(found), found.adapters / str(number)), PROMPT, 16)
            for number in range(3)
        ]
        assert answers[:3] == wanted
        assert greedy(model_of(found), PROMPT, 16) not in wanted
        assert len({tuple(answer) for answer in wanted}) == 3


def test_a_mixture_of_experts_is_served(tmp_path: Path) -> None:
    with started(tmp_path, replace(SERVED, model=MIXTURE)) as found:
        check_greedy(found)


def test_a_prompt_is_read_by_one_server_and_its_output_generated_by_another(tmp_path: Path) -> None:
    with started(tmp_path, prefill_apart=True, block_size=32, prefix_caching=False) as found:
        check_greedy(found)
        before = found.told("request_prefill_kv_computed_tokens_sum")
        transferred = found.total("external_prefix_cache_hits_total")
        assert found.tokens(PROMPT, 16) == greedy(model_of(found), PROMPT, 16)
        # Whole blocks of all but the last token come over; the second server computes the rest.
        assert found.total("external_prefix_cache_hits_total") - transferred == 96
        after = found.told("request_prefill_kv_computed_tokens_sum")
        assert [now - then for now, then in zip(after, before, strict=True)] == [128, 32]


def drawing(found: Started, **sampling: float) -> Started:
    form = found.plan.form.drawing(VLLM.drawn_by(Sampling(**sampling)))
    return replace(found, plan=found.plan.model_copy(update={"form": form}))


def test_several_answers_are_drawn_side_by_side(tmp_path: Path) -> None:
    with started(tmp_path) as found:
        both = drawing(found, temperature=0.05, n=2).tokens(PROMPT, 24, 1)
        assert len(both) == 48
        assert both[:24] != both[24:]
        assert found.total("generation_tokens_total") == 48


def test_tokens_are_drawn_by_the_models_probabilities_and_by_the_requests_seed(tmp_path: Path) -> None:
    draws = 300
    with started(tmp_path) as found:
        drawn = drawing(found, temperature=0.05)
        again = [drawn.tokens(PROMPT, 24, number) for number in (1, 1, 2)]
        assert again[0] == again[1] != again[2]
        firsts = Counter(drawn.tokens(PROMPT, 1, number)[0] for number in range(draws))
        assert drawing(found, temperature=0.05, top_p=0.01).tokens(PROMPT, 24) == found.tokens(PROMPT, 24)
        with torch.no_grad():
            logits = model_of(found)(torch.tensor([PROMPT])).logits[0, -1]
    (share, *_), (token, *_) = (found.tolist() for found in torch.softmax(logits / 0.05, 0).sort(descending=True))
    assert 0.02 < share < 0.98
    assert abs(firsts[token] - draws * share) < 4 * (draws * share * (1 - share)) ** 0.5


def beams_of(model: Any, prompt: Sequence[int], beams: int, count: int) -> list[list[int]]:
    ids = torch.tensor([list(prompt)])
    with torch.no_grad():
        made = model.generate(
            input_ids=ids,
            num_beams=beams,
            num_return_sequences=beams,
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=None,
        )
    found: list[list[int]] = made[:, len(prompt) :].tolist()
    return found


def test_beams_are_the_likeliest_sequences_that_transformers_finds(tmp_path: Path) -> None:
    with started(tmp_path, replace(SERVED, beams=11)) as found:
        assert drawing(found, beams=11).answers(PROMPT, 24) == beams_of(model_of(found), PROMPT, 11, 24)


def test_beams_of_an_adapter_are_those_that_peft_finds(tmp_path: Path) -> None:
    from peft import PeftModel

    with started(tmp_path, replace(SERVED, beams=3, adapters=ServedAdapters(number=2, rank=4))) as found:
        searched = [drawing(found, beams=3).answers(PROMPT, 16, number) for number in range(2)]
        assert found.adapters
        wanted = [
            beams_of(PeftModel.from_pretrained(model_of(found), found.adapters / str(number)), PROMPT, 3, 16)
            for number in range(2)
        ]
    assert searched == wanted
    assert wanted[0] != wanted[1]
