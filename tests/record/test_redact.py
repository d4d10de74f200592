import pytest

from llmexp.record.redact import is_secret_name, redact, secret_in


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
    monkeypatch.setenv("FOO_TOKEN", "abcdefgh")
    monkeypatch.setenv("FOO_TOKEN_LONG", "abcdefghijkl")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "abcdefg0")
    monkeypatch.setenv("SHORT_KEY", "word")
    assert redact("abcdefgh abcdefghijkl abcdefg0 word") == "*** *** abcdefg0 word"


KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----"
TOKENS = [f"ghp_{'a1' * 18}", f"hf_{'aB' * 17}", f"sk-{'x-9_' * 10}", "AKIAIOSFODNN7EXAMPLE", f"glpat-{'z' * 20}", KEY]


@pytest.mark.parametrize("token", TOKENS)
def test_tokens_are_known_by_their_form(token):
    assert redact(f"+key = '{token}'\n") == "+key = '***'\n"
    assert secret_in(f"--key={token}") == "a token or a private key"


@pytest.mark.parametrize("text", ["sk-learn", "hf_models/tiny", "ssh://git@host/a.git", "task-force_of_many-people-in-one-very-long-name", "AKIA"])
def test_ordinary_words_are_no_secrets(text):
    assert redact(text).replace("***@", "git@") == text
    assert secret_in(text) == ""


@pytest.mark.parametrize("url", ["https://ghp_0123@github.com/a/b.git", "postgresql://u:p@db/x", "https://host/x?token=abc"])
def test_a_url_with_a_login_holds_a_secret(url):
    assert secret_in(url) == "a URL with a login"


@pytest.mark.parametrize("name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "aws_access_key_id", "WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD"])
def test_secret_names_are_known(name):
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["PATH", "KEYBOARD", "TOKENIZERS_PARALLELISM", "NCCL_DEBUG", "PWD"])
def test_other_names_are_not(name):
    assert not is_secret_name(name)
