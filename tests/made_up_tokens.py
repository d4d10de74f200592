"""Made-up tokens of every known form, put together here, so that no scanner takes this repository for a leak."""

import base64
import json
import random
import string

_DRAWN = random.Random(0)
_LETTERS, _DIGITS, _HEX = string.ascii_letters, string.digits, "0123456789abcdef"
_PLAIN = _LETTERS + _DIGITS
_URL, _BASE64 = _PLAIN + "-_", _PLAIN + "+/"


def _some(count: int, characters: str = _PLAIN) -> str:
    """Beginning and ending with neither a hyphen nor an underscore, with a digit in it."""
    ends = [_DRAWN.choice([each for each in characters if each.isalnum()]) for _ in range(2)]
    digit = [each for each in characters if each.isdigit()][-1:]
    return "".join([ends[0], *digit, *(_DRAWN.choice(characters) for _ in range(count - len(digit) - 2)), ends[1]])


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _jwt() -> str:
    return ".".join(
        [
            _base64(json.dumps({"alg": "HS256", "typ": "JWT"})),
            _base64(json.dumps({"sub": "1234567890", "iat": 1516239022})),
            _some(43, _URL),
        ]
    )


def private_key(kind: str, headers: str = "") -> str:
    lines = "\n".join(_some(64, _BASE64) for _ in range(8))
    return f"-----BEGIN {kind}-----\n{headers}{lines}\n{_some(22)}==\n-----END {kind}-----"


_NUMBERS = [_some(12, _DIGITS) for _ in range(2)]
_OPENAI = "T3Blbk" + "FJ"

TOKENS = {
    "GitHub": "ghp_" + _some(36),
    "GitHub, of an app": "ghs_" + _some(36),
    "GitHub, fine-grained": f"github_pat_{_some(22)}_{_some(59)}",
    "GitLab": "glpat-" + _some(20, _URL),
    "GitLab, routable": f"glpat-{_some(27, _URL)}.01.{_some(9, _HEX)}",
    "GitLab, of a runner": "glrt-" + _some(20, _URL),
    "Hugging Face": "hf_" + _some(34, _LETTERS),
    "Hugging Face, of an organization": "api_org_" + _some(34, _LETTERS),
    "OpenAI": f"sk-{_some(20)}{_OPENAI}{_some(20)}",
    "OpenAI, of a project": f"sk-proj-{_some(74, _URL)}{_OPENAI}{_some(74, _URL)}",
    "OpenAI, of a service": f"sk-svcacct-{_some(58, _URL)}{_OPENAI}{_some(58, _URL)}",
    "Anthropic": f"sk-ant-api03-{_some(93, _URL)}AA",
    "OpenRouter": "sk-or-v1-" + _some(64, _HEX),
    "AWS": "AKIA" + _some(16, string.ascii_uppercase + "234567"),
    "AWS, for a session": "ASIA" + _some(16, string.ascii_uppercase + "234567"),
    "AWS Bedrock": "ABSK" + _some(132, _BASE64),
    "Google": "AIza" + _some(35, _URL),
    "Google, of a client": "GOCSPX-" + _some(28, _URL),
    "Google, for a session": "ya29." + _some(120, _URL),
    "Microsoft Entra": f"{_some(3)}8Q~{_some(34, _URL)}",
    "Slack": f"xoxb-{'-'.join(_NUMBERS)}-{_some(24)}",
    "Slack, of an app": f"xapp-1-A{_some(10)}-{_NUMBERS[0]}-{_some(64, _HEX)}",
    "Slack, webhook": f"hooks.slack.com/services/T{_some(8)}/B{_some(8)}/{_some(24)}",
    "Discord": f"{_base64('80' + _some(16, _DIGITS))}.{_some(6)}.{_some(38, _URL)}",
    "Discord, webhook": f"discord.com/api/webhooks/{_NUMBERS[0]}/{_some(68, _URL)}",
    "Telegram": f"{_some(9, _DIGITS)}:AA{_some(33, _URL)}",
    "Stripe": "sk_live_" + _some(24),
    "Stripe, restricted": "rk_test_" + _some(99),
    "Twilio": "SK" + _some(32, _HEX),
    "SendGrid": f"SG.{_some(22, _URL)}.{_some(43, _URL)}",
    "Mailchimp": f"{_some(32, _HEX)}-us12",
    "npm": "npm_" + _some(36),
    "PyPI": "pypi-AgEIcHlwaS5vcmc" + _some(150, _URL),
    "PyPI, for tests": "pypi-AgENdGVzdC5weXBpLm9yZw" + _some(150, _URL),
    "Docker": "dckr_pat_" + _some(27, _URL),
    "Artifactory": "AKCp" + _some(69),
    "Artifactory, reference": "cmVmd" + _some(59),
    "Databricks": "dapi" + _some(32, _HEX),
    "Databricks, on Azure": f"dapi{_some(32, _HEX)}-2",
    "Weights & Biases": f"wandb_v1_{_some(22)}_{_some(54)}",
    "Neptune": _base64('{"api_address":"https://app.example.org","api_key":"0123456789abcdef"}'),
    "Replicate": "r8_" + _some(37),
    "Groq": "gsk_" + _some(52),
    "NVIDIA": "nvapi-" + _some(64, _URL),
    "xAI": "xai-" + _some(80),
    "Perplexity": "pplx-" + _some(48),
    "LangSmith": f"lsv2_pt_{_some(32, _HEX)}_{_some(10, _HEX)}",
    "Pinecone": f"pcsk_{_some(6)}_{_some(60)}",
    "RunPod": "rpa_" + _some(44),
    "HashiCorp": "hvs." + _some(95, _URL),
    "HashiCorp, Terraform": f"{_some(14)}.atlasv1.{_some(67, _URL)}",
    "DigitalOcean": "dop_v1_" + _some(64, _HEX),
    "Grafana": f"glsa_{_some(32)}_{_some(8, _HEX)}",
    "Prefect": "pnu_" + _some(36),
    "age": "AGE-SECRET-KEY-1" + _some(58, string.ascii_uppercase + _DIGITS),
    "JWT": _jwt(),
}
