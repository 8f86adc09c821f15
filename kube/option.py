"""Declares each option of a program once, as a field of the program's settings.

Flags, mitmproxy's options, the settings, `--help`, shell completion, man pages and the tables of `docs/` are all
generated from these fields. A mistyped flag is reported in one line.
"""

from __future__ import annotations

import argparse
import dataclasses
import ipaddress
import pwd
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

VERSION = "0.2.0"
"""The version of both programs, which pyproject.toml reads here. To ask importlib.metadata takes longer than to bind
all ports."""

type Parse = Callable[[str, Any], Any]
"""Parses an option from its name and its value as typed; ValueError in the operator's terms."""

_TRUE, _FALSE = frozenset({"1", "t", "true"}), frozenset({"0", "f", "false"})
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


@dataclass(slots=True)
class Option:
    """One option. `options_of` adds the field's name, and the parser for the field's type."""

    default: Any
    """The default as typed: a string, an integer or a boolean."""
    text: str
    """The help text: sentences in Markdown, with links as in `docs/`."""
    name: str
    """The name with underscores; the flag has dashes."""
    shown: str
    """A description of the default, if it is computed."""
    group: str
    """The heading under which `--help` and the docs list the option."""
    field: str = dataclasses.field(default="", init=False)
    parse: Parse = dataclasses.field(default=lambda _name, value: value, init=False)
    choices: tuple[str, ...] = dataclasses.field(default=(), init=False)

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def kind(self) -> type:
        return type(self.default)

    @property
    def plain_text(self) -> str:
        """The help text without Markdown, for a terminal."""
        return _LINK.sub(r"\1", self.text).replace("`", "")

    @property
    def default_text(self) -> str:
        """The default as shown in help and docs; "" if there is none."""
        return self.shown or ("" if self.default in ("", False) else str(self.default))

    def default_setting(self) -> Any:
        return self.parse(self.name, self.default)

    def from_text(self, text: str) -> Any:
        """Parse the value of NAME=VALUE, as mitmproxy's `--set` does."""
        return text in ("", "true") if self.kind is bool else self.kind(text)


def option(default: Any, text: str, *, name: str = "", shown: str = "", begins: str = "") -> Any:
    """Declare a field of settings as an option, called by the field's name or `name`.

    `begins` starts a new group with this heading. The function in the field's type annotation parses values.
    """
    made = Option(default, text, name, shown, begins)
    return dataclasses.field(default_factory=made.default_setting, metadata={"option": made})


def options_of(settings: type) -> tuple[Option, ...]:
    """The options of a class of settings, in order."""
    group = ""
    hints = get_type_hints(settings, include_extras=True)
    options = []
    for field in dataclasses.fields(settings):
        made: Option = field.metadata["option"]
        made.field, made.name = field.name, made.name or field.name
        made.group = group = made.group or group
        hint = hints[field.name]
        if get_origin(hint) is Literal:
            made.choices = get_args(hint)
            made.parse = partial(one_of, made.choices)
        elif get_origin(hint) is Annotated:
            (made.parse,) = hint.__metadata__
        options.append(made)
    return tuple(options)


def read[T](settings: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """Parse settings from `{option name: value as typed}`; missing options have their defaults.

    ValueError for the first invalid value; the message has the option's name with `prefix`.
    """
    known = options_of(settings)
    given = [option for option in known if option.name in values]
    return settings(
        **{option.field: option.parse(prefix + option.name, values[option.name]) for option in given}
    )


def grouped(options: Iterable[Option]) -> Iterator[tuple[str, list[Option]]]:
    """The options by group, both in the order in which they first occur."""
    groups: dict[str, list[Option]] = {}
    for option in options:
        groups.setdefault(option.group, []).append(option)
    yield from groups.items()


def add_flags(parser: argparse.ArgumentParser, options: Sequence[Option]) -> None:
    """Add a flag for each option. The parser's result has only flags that were typed."""
    for heading, those in grouped(options):
        group = parser.add_argument_group(heading)
        for option in those:
            help_text = f" Default: {as_flags(option.default_text)}." if option.default_text else ""
            given: dict[str, Any] = {"dest": option.name, "default": argparse.SUPPRESS}
            given["help"] = (as_flags(option.plain_text) + help_text.replace("`", "")).replace("%", "%%")
            if option.default is False:
                given["action"] = "store_true"
            elif option.default is True:
                given |= {"nargs": "?", "const": True, "type": boolean, "metavar": "BOOL"}
            elif option.choices:
                given["choices"] = option.choices
            else:
                given |= {"type": option.kind, "metavar": _metavar(option)}
            group.add_argument(option.flag, **given)
            if option.default is True:
                help_text = f"The same as {option.flag}=false."
                group.add_argument(
                    f"--no-{option.flag[2:]}", dest=option.name, action="store_false", help=help_text
                )


def add_commands(parser: argparse.ArgumentParser, *others: argparse.ArgumentParser) -> None:
    """List the subcommands of other parsers in this parser's help. The program dispatches them itself."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for action in (action for other in others for action in other._actions):
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, subparser in action.choices.items():
                text = texts[name][:1].lower() + texts[name][1:].removesuffix(".")
                commands.add_parser(
                    name,
                    help=text,
                    description=subparser.description,
                    epilog=subparser.epilog,
                    parents=[subparser],
                    add_help=False,
                )


def as_flags(text: str) -> str:
    """Replace mitmproxy's option names in a message by the flags of `edgehub`: `hub_tls_cert` becomes `--tls-cert`."""
    return re.sub(r"\bhub_[a-z_]+", lambda match: "--" + match[0][4:].replace("_", "-"), text)


class FlagParser(argparse.ArgumentParser):
    """A parser that reports an error without the list of all flags, in which it would be hard to find."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; `{self.prog} --help` names all flags\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.option_strings and action.choices is not None and value not in action.choices:
            self.error(
                f"{action.option_strings[-1]} must be one of {', '.join(action.choices)}, not {value!r}"
            )
        super()._check_value(action, value)


def boolean(text: str) -> bool:
    """Parse a boolean as Go's flags do, in any case; ValueError for any other text."""
    entry = text.lower()
    if entry not in _TRUE | _FALSE:
        raise ValueError(text)
    return entry in _TRUE


def split_list(text: str) -> Iterator[str]:
    """Split a comma-separated option."""
    return (entry.strip() for entry in text.split(",") if entry.strip())


def _path(_name: str, text: str) -> Path | None:
    return Path(text).expanduser() if text else None


def _files(_name: str, text: str) -> tuple[Path, ...]:
    return tuple(Path(entry).expanduser() for entry in split_list(text))


def _names(_name: str, text: str) -> frozenset[str]:
    return frozenset(split_list(text))


def _users(name: str, text: str) -> frozenset[int]:
    try:
        return frozenset(
            int(entry) if entry.isdecimal() else pwd.getpwnam(entry).pw_uid for entry in split_list(text)
        )
    except KeyError as error:
        raise ValueError(f"{name}: this node has no user {error.args[0].rpartition(' ')[2]}") from None


def _http_url(name: str, text: str) -> str:
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError(f"{name} {text!r} is not of the form http://host:port/path")
    return text


def _port(name: str, number: int) -> int:
    if not 0 <= number <= 65535:
        raise ValueError(f"{name} {number} is not a port")
    return number


def _address(name: str, text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip())) if text else ""
    except ValueError:
        raise ValueError(f"{name}: {text!r} is not an IP address") from None


def addresses(name: str, text: str) -> tuple[str, ...]:
    """Parse comma-separated IP addresses; "" has none."""
    return tuple(_address(name, address or " ") for address in text.split(",")) if text else ()


def _above_zero(unit: str, name: str, number: int) -> int:
    if number <= 0:
        raise ValueError(f"{name} must be {unit}, more than 0")
    return number


def _from_zero(unit: str, name: str, number: int) -> int:
    if number < 0:
        raise ValueError(f"{name} must be {unit}, 0 or more")
    return number


def one_of(choices: tuple[str, ...], name: str, text: str) -> str:
    """Check that the text is one of the choices."""
    if text not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {text!r}")
    return text


Port = Annotated[int, _port]
Seconds = Annotated[int, partial(_above_zero, "seconds")]
SecondsOrNone = Annotated[int, partial(_from_zero, "seconds")]
"""Seconds; 0 means unlimited."""
Days = Annotated[int, partial(_above_zero, "days")]
Kilobytes = Annotated[int, partial(_above_zero, "kilobytes")]
IpAddress = Annotated[str, _address]
IpAddresses = Annotated[tuple[str, ...], addresses]
HttpUrl = Annotated[str, _http_url]
Names = Annotated[frozenset[str], _names]
Users = Annotated[frozenset[int], _users]
"""User ids of this machine's users, given by name or number."""
Folder = Annotated[Path, _path]
File = Annotated[Path | None, _path]
Files = Annotated[tuple[Path, ...], _files]


def _metavar(option: Option) -> str:
    """The metavar of the flag in `--help`: the last word of its name."""
    last = option.name.rpartition("_")[2]
    return {"kubeconfig": "FILE", "cert": "FILE", "key": "FILE", "dir": "FOLDER"}.get(last, last.upper())
