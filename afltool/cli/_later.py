"""Commands whose options are made when one of them is asked for: `run` has hundreds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
import typer.core


class Later(typer.core.TyperCommand):
    """A command of which only the name and the help are known until more is asked."""

    def __init__(self, **known: Any) -> None:
        super().__init__(**known)
        self.make = known["callback"].make
        del self.params, self.callback

    def __getattr__(self, name: str) -> Any:
        if name not in ("params", "callback"):
            raise AttributeError(f"a command has no {name!r}")
        app = typer.Typer(add_completion=False)
        app.command(self.name)(self.make())
        made = typer.main.get_command(app)
        self.params, self.callback = made.params, made.callback
        return getattr(self, name)


def add_later(
    app: typer.Typer, name: str, says: str | None, make: Callable[[], Callable[..., Any]]
) -> None:
    """Add a command to an app; ``make`` gives the function that Typer makes it of."""

    def later() -> None:
        """Stands for the function until it is made."""

    later.__doc__ = says
    vars(later)["make"] = make  # Typer hands it on with the name and the text
    app.command(name, cls=Later)(later)
