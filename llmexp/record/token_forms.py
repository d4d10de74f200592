"""The forms of tokens, by their issuer: a new form is a row of `FORMS`, and an example of it in the tests.

Prefixes, alphabets and lengths are facts. They come from gitleaks' rules (MIT, as of July 2026), for the new keys of
Weights & Biases from its issue threads, and for issuers that gitleaks does not know from what their users see. Lengths
are the shortest known, because issuers make their tokens longer over time. A token without a form of its own (40
hexadecimal digits, an AWS secret) looks like a digest and has no row: `redact` knows it by the name that it is assigned
to.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

# A token does not begin within a longer word, but it may follow the letter that ends an escape of a newline or a URL.
_BEFORE = (r"(?<![A-Za-z0-9]{})", r"(?<=\\[nrt]{})", r"(?<=%[0-9A-Fa-f][0-9A-Fa-f]{})")


class _Row(NamedTuple):
    issuer: str
    prefixes: str
    rest: str
    before: str = ""


class Form(_Row):
    """One kind of token: one of the prefixes, which are separated by blanks, and then `rest`.

    Where the mark is in the middle of the token, `before` matches what comes ahead of it.
    """

    @cached_property
    def _marks(self) -> list[str]:
        return self.prefixes.split()

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """The pattern that matches the mark first and looks behind it afterwards.

        `re` is fast where a pattern begins with plain letters.
        """
        marks = [re.escape(mark) for mark in self._marks]
        begun = [
            self.before + mark if self.before else f"{mark}(?:{'|'.join(each.format(mark) for each in _BEFORE)})"
            for mark in marks
        ]
        return re.compile(f"(?:{'|'.join(begun)})(?:{self.rest})")

    def hide(self, text: str, by: str) -> str:
        """Replace each token with `by`."""
        return self._pattern.sub(by, text) if self._may_be_in(text) else text

    def is_in(self, text: str) -> bool:
        """Tell whether a text has such a token."""
        return self._may_be_in(text) and bool(self._pattern.search(text))

    def _may_be_in(self, text: str) -> bool:
        """Tell whether a text has any prefix: most have none, and this search is ten times as fast as the pattern."""
        for mark in self._marks:  # noqa: SIM110  any() over a generator takes twice as long
            if mark in text:
                return True
        return False


_END = r"(?![A-Za-z0-9])"
# A user's decimal number in base64, with three digits in four characters.
_NUMBER = r"(?:[MNO][DTjz][AEIMQUYcgk][w-z0-5]){5,6}[\w-]{0,3}"

FORMS = (
    Form("GitHub", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"[\w.-]{35,}\w"),
    Form(
        "GitLab",
        "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- gloas- glsoat- glffct- GR1348941",
        r"[\w.-]{19,}\w",
    ),
    Form("Hugging Face", "hf_ api_org_", r"[A-Za-z0-9]{30,}"),
    # Also Anthropic, OpenRouter, DeepSeek and LiteLLM, which use the same form; a digit tells it from a name.
    Form("OpenAI", "sk-", r"(?<![\w-][_-]sk-)(?=[A-Za-z_-]{0,60}\d)[\w-]{32,}"),
    Form("AWS", "AKIA ASIA ABIA ACCA", rf"[A-Z0-9]{{16}}{_END}"),
    Form("AWS Bedrock", "ABSK", r"[A-Za-z0-9+/]{100,}={0,2}"),
    Form("Google", "AIza", rf"[\w-]{{35}}{_END}"),
    Form("Google", "GOCSPX- ya29.", r"[\w.-]{27,}\w"),
    Form("Microsoft Entra", "Q~", rf"[\w.~-]{{31,34}}{_END}", before=r"[\w.~-]{3}\d"),
    Form(
        "Slack",
        "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.xoxb- xoxe.xoxp- xapp-",
        r"(?=[A-Za-z-]{0,40}\d)[\w-]{20,}",
    ),
    Form("Slack", "hooks.slack.com/services/ hooks.slack.com/workflows/ hooks.slack.com/triggers/", r"[\w/+-]{20,}"),
    Form("Discord", "discord.com/api/webhooks/ discordapp.com/api/webhooks/", r"\d+/[\w-]{30,}"),
    Form("Discord", ".", r"[\w-]{6}\.[\w-]{27,}", before=_NUMBER),
    Form("Telegram", ":AA", rf"[\w-]{{33}}{_END}", before=r"\d{8,10}"),
    Form("Stripe", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", r"[A-Za-z0-9]{20,}"),
    Form("Twilio", "SK", rf"[0-9a-f]{{32}}{_END}"),
    Form("SendGrid", "SG.", r"[\w-]{20,}\.[\w-]{40,}"),
    Form("Mailchimp", "-us", rf"\d{{1,2}}{_END}", before=r"[0-9a-f]{32}"),
    Form("npm", "npm_", r"[A-Za-z0-9]{36,}"),
    Form("PyPI", "pypi-AgEIcHlwaS5vcmc pypi-AgENdGVzdC5weXBpLm9yZw", r"[\w-]{50,}"),
    Form("Docker", "dckr_pat_ dckr_oat_", r"[\w-]{26,}"),
    Form("Artifactory", "AKCp cmVmd", rf"[A-Za-z0-9]{{59,69}}{_END}"),
    Form("Databricks", "dapi", rf"[0-9a-f]{{32}}(?:-\d)?{_END}"),
    Form("Weights & Biases", "wandb_v1_", r"\w{40,}"),
    Form("Neptune", "eyJhcGlfYWRkcmVzcyI6", r"[A-Za-z0-9+/]{40,}={0,2}"),
    Form("Replicate", "r8_", r"[A-Za-z0-9]{37,}"),
    Form("Groq", "gsk_", r"[A-Za-z0-9]{40,}"),
    Form("NVIDIA", "nvapi-", r"[\w-]{40,}"),
    Form("xAI", "xai-", r"[A-Za-z0-9]{40,}"),
    Form("Perplexity", "pplx-", r"[A-Za-z0-9]{40,}"),
    Form("LangSmith", "lsv2_pt_ lsv2_sk_", r"[0-9a-f]{32}\w*"),
    Form("Pinecone", "pcsk_", r"\w{40,}"),
    Form("RunPod", "rpa_", r"[A-Za-z0-9]{40,}"),
    Form("HashiCorp", "hvs. hvb.", r"[\w-]{24,}"),
    Form("HashiCorp", ".atlasv1.", r"[\w=-]{60,}", before=r"[A-Za-z0-9]{14}"),
    Form("DigitalOcean", "dop_v1_ doo_v1_ dor_v1_", r"[0-9a-f]{64}"),
    Form("Grafana", "glsa_ glc_", r"[\w+/]{32,}={0,2}"),
    Form("Prefect", "pnu_", r"[A-Za-z0-9]{36}"),
    Form("age", "AGE-SECRET-KEY-1", r"[A-Z0-9]{58}"),
    # A JSON Web Token: two JSON objects in base64, and a signature.
    Form("JWT", "eyJ", r"(?<![\w-][_-]eyJ)[\w=-]{10,1000}+\.eyJ[\w=-]{10,}(?:\.[\w=-]+)?"),
)
