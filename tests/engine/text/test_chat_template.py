from __future__ import annotations

from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from engine.text.chat_template import ChatTemplate, ChatTemplateError

TURNS = [
    {"role": "system", "content": "Be <brief> & kind."},
    {"role": "user", "content": "Hé!", "name": "Ann"},
    {"role": "assistant", "content": "Yes?"},
]


def render(source: str, messages: list[dict[str, Any]] = TURNS, **variables: Any) -> str:
    return ChatTemplate(source).render(
        messages,
        special_tokens={"bos_token": "<s>"},
        add_generation_prompt=True,
        variables=variables,
    )


SOURCES = {
    "blocks on lines of their own": """{{ bos_token }}
{% for message in messages %}
    {% if message['role'] == 'user' %}
[U] {{ message['content'] | trim }}
    {% else %}
[O] {{ message.content }}
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}[A]{% endif %}""",
    "loop controls": "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
    "{{ m.role }}{% endfor %}",
    "json": "{{ messages | tojson }}\n{{ messages[0] | tojson(indent=2) }}",
    "marked answers": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% endfor %}",
    "a variable": "{{ 'deep' if enable_thinking else 'quick' }}",
}


@pytest.mark.parametrize("name", SOURCES)
def test_it_renders_as_transformers_does(name: str) -> None:
    variables = {"enable_thinking": True}
    (expected,), _ = render_jinja_template(
        [TURNS],
        chat_template=SOURCES[name],
        add_generation_prompt=True,
        bos_token="<s>",
        **variables,
    )
    assert render(SOURCES[name], **variables) == expected


def test_a_template_may_refuse_a_conversation() -> None:
    with pytest.raises(ChatTemplateError, match="refuses these messages: roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


def test_a_broken_template_is_refused() -> None:
    with pytest.raises(ChatTemplateError, match="is broken"):
        ChatTemplate("{% for message in %}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__base__ }}{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ messages[9].content }}",
    ],
)
def test_a_template_reaches_nothing_but_the_conversation(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="does not take these messages"):
        render(source)
