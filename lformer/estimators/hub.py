"""Save estimators to and load them from the Hugging Face Hub: the folder that `save` writes, as a repository."""

from __future__ import annotations

import importlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from lformer.estimators.folder import ESTIMATOR, PATTERNS

CARD = """---
library_name: lformer
tags:
- irregular-time-series
- time-series
---
# {name}

An `{name}` of the Python library lformer. It reads the channels {channels}.

```python
from lformer import {name}

model = {name}.from_pretrained("{repo_id}")
```
"""


class HubMixin:
    """`push_to_hub` and `from_pretrained`; only these two methods need the extra `hub`."""

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, token: str | None = None, message: str = "Add model"
    ) -> str:
        """Upload the fitted estimator; creates the repository if needed, and keeps an existing README.

        Args:
            repo_id: "owner/name".
            private: whether a new repository is private; the owner's default if None.
            token: access token of the Hub; that of `hf auth login` if None.
            message: commit message.

        Returns:
            The URL of the repository.
        """
        from lformer.estimators import artefact

        estimator: Any = self
        with TemporaryDirectory() as home:
            folder = Path(home) / "model"
            artefact.save(estimator, folder)
            api = _hub().HfApi(token=token)
            address = api.create_repo(repo_id, private=private, exist_ok=True)
            if not api.file_exists(repo_id, "README.md"):
                channels = ", ".join(f"`{name}`" for name in estimator.features_.channels)
                card = CARD.format(name=type(self).__name__, channels=channels, repo_id=repo_id)
                (folder / "README.md").write_text(card, encoding="utf-8")
            api.upload_folder(  # weights that are no longer referenced are deleted in the same commit
                repo_id=repo_id, folder_path=folder, commit_message=message, delete_patterns=PATTERNS
            )
        return str(address)

    @classmethod
    def from_pretrained(
        cls,
        place: str | Path,
        *,
        revision: str | None = None,
        token: str | None = None,
        cache: str | Path | None = None,
    ) -> Self:
        """Load a fitted estimator of this class from a folder, or from a repository of the Hub.

        Args:
            place: a folder that `save` wrote, else "owner/name".
            revision: branch, tag or commit of the repository; its main branch if None.
            token: access token of the Hub, for a private repository; that of `hf auth login` if None.
            cache: folder for downloads; the Hub's own if None.
        """
        from lformer.estimators import artefact

        folder = Path(place).expanduser()
        if not folder.is_dir():
            files = [ESTIMATOR, *PATTERNS]
            fetch = _hub().snapshot_download
            folder = Path(
                fetch(_repository(place), revision=revision, token=token, cache_dir=cache, allow_patterns=files)
            )
        estimator = artefact.load(folder)
        if not isinstance(estimator, cls):
            name = type(estimator).__name__
            raise ValueError(f"{place} holds a {name}, not a {cls.__name__}. Load it with {name}.from_pretrained(...).")
        return estimator


def _repository(place: str | Path) -> str:
    """The place, if it can be "owner/name": a mistyped folder should not cause a request to a server."""
    parts = str(place).split("/")
    if isinstance(place, Path) or len(parts) != 2 or not all(parts) or parts[0] in (".", "..", "~"):
        raise FileNotFoundError(f'{place} is neither a folder nor a repository of the Hub, written as "owner/name".')
    return str(place)


def _hub() -> Any:
    """The client of the Hub, imported only when needed."""
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError:
        raise ImportError('the Hugging Face Hub needs its client: pip install "lformer[hub]"') from None
