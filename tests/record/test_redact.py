from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from made_up_tokens import TOKENS, private_key

from llmexp.record.redact import is_secret_name, redact, redact_all, secret_in
from llmexp.record.token_forms import FORMS

REPOSITORY = Path(__file__).parents[2]
HEX40 = hashlib.sha1(b"").hexdigest()


@pytest.fixture(autouse=True)
def _no_secrets_of_this_shell(monkeypatch):
    monkeypatch.setattr("llmexp.record.redact.os.environ", {})


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("http://me:pass@host:5000/x", "http://***@host:5000/x"),
        ("postgresql://u:p@ss@db/mlflow", "postgresql://***@db/mlflow"),
        ("https://ghp_0123@github.com/a/b.git and more", "https://***@github.com/a/b.git and more"),
        ("https://host/x?user=a&token=abc&b=1", "https://host/x?user=a&token=***&b=1"),
        ('{"uri": "http://a:b@c"}', '{"uri": "http://***@c"}'),
        ("mail to me@host, http://host/@x", "mail to me@host, http://host/@x"),
    ],
)
def test_credentials_of_urls_are_hidden_and_nothing_else(text, clean):
    assert redact(text) == clean


def test_values_of_secret_variables_are_hidden(monkeypatch):
    shell = {
        "FOO_TOKEN": "abcdefgh",
        "FOO_TOKEN_LONG": "abcdefghijkl",
        "TOKENIZERS_PARALLELISM": "abcdefg0",
        "SHORT_KEY": "word",
    }
    monkeypatch.setattr("llmexp.record.redact.os.environ", shell)
    assert redact("abcdefgh abcdefghijkl abcdefg0 word") == "*** *** abcdefg0 word"


def test_every_form_has_an_example():
    assert {form for form in FORMS if not any(form.is_in(token) for token in TOKENS.values())} == set()


@pytest.mark.parametrize(
    "around",
    [
        "+key = '{}'\n",
        "{}",
        "-{}\n",
        "two\\n{}\\nlines",
        "refused: {}.",
        "to%3D{}&x=1",
        '{{"login": "{}"}}',
        "a\n{}\nb",
    ],
)
@pytest.mark.parametrize("issuer", TOKENS)
def test_tokens_are_known_by_their_form_wherever_they_stand(issuer, around):
    assert redact(around.format(TOKENS[issuer])) == around.format("***")
    assert secret_in(around.format(TOKENS[issuer])).startswith("a token (")


@pytest.mark.parametrize(
    "key",
    [
        *(private_key(f"{kind}PRIVATE KEY") for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")),
        private_key("PGP PRIVATE KEY BLOCK"),
        private_key("RSA PRIVATE KEY", headers=f"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,{'0A' * 16}\n\n"),
    ],
)
def test_private_keys_are_hidden_in_files_diffs_logs_and_json(key):
    assert secret_in(key) == "a private key"
    assert redact(f"before\n{key}\nafter") == "before\n***\nafter"
    assert redact("\n".join(f"+{line}" for line in key.splitlines())) == "+***"
    assert redact("\n".join(f"[rank0]: {line}" for line in key.splitlines())) == "[rank0]: ***"
    account = {"type": "service_account", "private_key": key, "client_id": "7"}
    assert json.loads(redact(json.dumps(account))) == account | {"private_key": "***"}


def test_of_a_private_key_that_was_cut_off_nothing_is_left():
    cut = private_key("RSA PRIVATE KEY")[:400]
    assert redact(f'{{"text": "{cut}", "more": 1}}') == '{"text": "***", "more": 1}'


@pytest.mark.parametrize(
    "text",
    [
        "WANDB_API_KEY={}",
        '"aws_secret_access_key": "{}"',
        "AccountName=a;AccountKey={}==;EndpointSuffix=b",
        "export PGPASSWORD='{}'",
        "login(token='{}')",
        "-  api-key: {}",
        "Authorization: Bearer {}",
    ],
)
def test_what_looks_like_a_digest_is_hidden_where_its_name_says_that_it_is_secret(text):
    assert redact(text.format(HEX40)).rstrip() == text.format("***").replace("***==", "***")
    assert secret_in(text.format(HEX40)) == "a token or a password"


@pytest.mark.parametrize(
    "text",
    [
        HEX40,
        f"commit {HEX40}",
        f'{{"sha256": "{hashlib.sha256(b"").hexdigest()}", "id": "c8e0dd9c985d", "stack": "0123456789ab"}}',
        "outputs/main/tiny_Naive_c8e0dd9c985d/repeat.0/log.0.txt",
        f"models--meta-llama--Llama-2-7b-hf/snapshots/{HEX40}",
        "meta-llama/Llama-2-7b-chat-hf",
        "hf_models/tiny",
        "sk-learn",
        "task-force_of_many-people-in-one-very-long-name-0123456789",
        "AKIA",
        "token = secrets.token_hex(16)",
        "api_key=settings1.services.some_provider.key",
        "private_key: /home/me2/keys/of_the_server1",
        "CACHE_KEY = LLMEXP_CACHE_OF_VERSION_2",
        "eos_token=reserved_special_token_0123456789",
        "max_tokens: 1234567890123456789",
        f"cache key: {HEX40}",
        "the BEGIN PRIVATE KEY line",
        'text.startswith("-----BEGIN PRIVATE KEY-----")',
    ],
)
def test_ordinary_words_are_no_secrets(text):
    assert redact(text) == text
    assert secret_in(text) == ""


def test_base64_is_no_secret():
    digests = (hashlib.sha512(str(number).encode()).digest() for number in range(5000))
    text = "\n".join(base64.b64encode(digest).decode() for digest in digests)
    assert redact(text) == text


def test_a_users_name_in_an_address_is_no_secret():
    assert secret_in("ssh://git@host/a.git") == ""


def test_nothing_of_this_repository_is_hidden_but_made_up_logins_of_its_tests():
    names = _texts_of_the_repository()
    assert len(names) > 500
    hidden = {name: _hidden(name) for name in names}
    ours = {name: lines for name, lines in hidden.items() if lines and not name.startswith("tests/")}
    assert ours == {}
    assert [line for lines in hidden.values() for line in lines if "://" not in line] == []


def _texts_of_the_repository() -> list[str]:
    if not (git := shutil.which("git")) or not (REPOSITORY / ".git").exists():
        pytest.skip("only a checkout says which files are the repository's")
    return subprocess.run(
        [git, "ls-files"], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def _hidden(name: str) -> list[str]:
    path = REPOSITORY / name
    text = path.read_text(errors="replace") if path.is_file() else ""
    return [] if redact(text) == text else [line for line in text.splitlines() if redact(line) != line] or [name]


@pytest.mark.parametrize(
    "url", ["https://ghp_0123@github.com/a/b.git", "postgresql://u:p@db/x", "https://host/x?token=abc"]
)
def test_a_url_with_a_login_holds_a_secret(url):
    assert secret_in(url) == "a URL with a login"


def test_values_are_cleaned_one_by_one():
    nested = {"a": ["http://u:p@h", 1, None, {"b": (TOKENS["GitHub"], True)}], "c": 0.5}
    assert redact_all(nested) == {"a": ["http://***@h", 1, None, {"b": ["***", True]}], "c": 0.5}


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "aws_access_key_id", "WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD"]
)
def test_secret_names_are_known(name):
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["PATH", "KEYBOARD", "TOKENIZERS_PARALLELISM", "NCCL_DEBUG", "PWD"])
def test_other_names_are_not(name):
    assert not is_secret_name(name)
