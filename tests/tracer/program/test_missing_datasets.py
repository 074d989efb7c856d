"""Datasets whose data is not on the disk, with facts on a package that the test writes, and on those that are here."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

from fx_lsp.tracer.compat import FakeTensor
from fx_lsp.tracer.notes import Notes, collecting_notes
from fx_lsp.tracer.program.data.loaders import one_batch_each
from fx_lsp.tracer.program.data.missing_datasets import samples_of_missing_datasets, table
from fx_lsp.tracer.run.fakes import fake_mode

pytest.importorskip("PIL")
PACKAGE = """
import numpy
import torch
from PIL import Image

class Base(torch.utils.data.Dataset):
    def __init__(self, root, transforms=None):
        self.root, self.transforms = root, transforms

    def __getitem__(self, index):
        raise NotImplementedError

    def __len__(self):
        raise NotImplementedError

class Digits(Base):
    def __init__(self, root, train=True, transforms=None):
        super().__init__(root, transforms)
        if root == "":
            raise ValueError("no root")
        raise RuntimeError("not found")

    def __getitem__(self, index):
        image = self.transforms(Image.fromarray(self.rows[index].numpy()))
        return image, int(self.labels[index])

    def __len__(self):
        return len(self.rows)

class Folder(Base):
    def __init__(self, root, **options):
        open(root)
        super().__init__(root, **options)

class Sounds(torch.utils.data.Dataset):
    def __init__(self, root, part="small"):
        open(root)

    def __getitem__(self, index):
        return self.files[index]

    def __len__(self):
        return len(self.files)

def load(name):
    raise ConnectionError(name)
"""
FACTS = {
    "pictures.Digits": {
        "length": {"by": "train", "True": 600, "False": 100},
        "attributes": {
            "rows": {"tensor": "uint8", "shape": ["N", 28, 28]},
            "labels": {"array": "int64", "shape": ["N"], "below": 10},
        },
    },
    "pictures.Folder": {
        "base": "pictures.Base",
        "through": "transforms",
        "sample": [{"image": "RGB"}, 0],
        "attributes": {"classes": {"names": None}},
    },
    "pictures.Sounds": {
        "length": 50,
        "sample": {
            "by": "part",
            "small": [{"tensor": "float32", "shape": [1, 160]}, "a word", {"label": 2, "from": 1}],
        },
    },
    "pictures.load": {"returns": {"by": "name", "known": {"dict": {"length": 3}}}},
}


def to_tensor(image):
    numpy = importlib.import_module("numpy")
    tensor = torch.from_numpy(numpy.array(image)).float() / 255
    return tensor if tensor.dim() == 3 else tensor[None]


@pytest.fixture
def notes() -> Iterator[Notes]:
    with collecting_notes() as collected:
        yield collected


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: Notes):
    """The package, on fake tensors."""
    (tmp_path / "pictures.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pictures", raising=False)
    with ExitStack() as stack:
        stack.enter_context(samples_of_missing_datasets(FACTS))
        stack.enter_context(fake_mode())
        stack.enter_context(one_batch_each())
        yield importlib.import_module("pictures")
    del sys.modules["pictures"]


def test_the_class_reads_rows_and_the_loader_makes_a_batch(pictures, notes) -> None:
    digits = pictures.Digits("data", transforms=to_tensor)
    images, labels = next(iter(DataLoader(digits, batch_size=64, shuffle=True)))
    assert isinstance(images, FakeTensor) and images.shape == (64, 1, 28, 28)
    assert labels.max().item() == 9  # labels are in range, and known
    assert (len(digits), len(pictures.Digits("data", train=False, transforms=to_tensor))) == (600, 100)
    assert [*notes.report()] == [
        "the data of Digits is missing: placeholders of its kind represent its samples (28×28, pictures)"
    ]


def test_parts_and_joins_of_a_dataset_and_a_subclass(pictures) -> None:
    class Pairs(pictures.Digits):
        def __getitem__(self, index):
            image, label = super().__getitem__(index)
            return {"one": image, "two": image + 1, "label": label}

    pairs = Pairs("data", transforms=to_tensor)
    train, _ = random_split(pairs, [500, 100])
    joined = ConcatDataset([train, Subset(pairs, range(7))])
    loader = DataLoader(joined, 8, collate_fn=lambda samples: torch.stack([sample["two"] for sample in samples]))
    assert (len(joined), next(iter(loader)).shape) == (507, (8, 1, 28, 28))
    with pytest.raises(IndexError):
        pairs[600]


def test_a_guessed_size_is_noted_unless_transforms_determine_it(pictures, notes) -> None:
    resized = pictures.Folder("data", transforms=lambda image, label: (to_tensor(image.resize((8, 8))), label))
    assert resized[0][0].shape == (8, 8, 3)
    assert not notes.sizes
    plain = pictures.Folder("data", transforms=lambda image, label: (to_tensor(image), label))
    assert plain[0][0].shape == (375, 500, 3)
    assert notes.sizes == {"image_width": 500, "image_height": 375}
    assert notes.numbers == {"classes": len(plain.classes)}


def test_other_errors_and_arguments_are_as_they_were(pictures) -> None:
    with pytest.raises(ValueError, match="no root"):
        pictures.Digits("")
    with pytest.raises(FileNotFoundError):
        pictures.Sounds("data", part="large")
    waveform, word, label = pictures.Sounds("data")[3]
    assert (waveform.shape, word, label) == ((1, 160), "a word", 2)
    assert pictures.load("known") == {"length": 3}
    with pytest.raises(ConnectionError):
        pictures.load("other")


def test_a_subclass_may_lack_files_of_its_own(pictures) -> None:
    class Own(pictures.Sounds):
        def __init__(self, root):
            super().__init__(root)
            self.words = Path(root, "words.txt").read_text().split()

    assert len(Own("data")) == 50
    with pytest.raises(TypeError):
        Own()


def test_classes_are_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pictures.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    pictures = importlib.import_module("pictures")
    before = dict(vars(pictures.Folder))
    with samples_of_missing_datasets(FACTS):
        assert vars(pictures.Folder)["__init__"] is not before["__init__"]
    assert dict(vars(pictures.Folder)) == before
    del sys.modules["pictures"]


@pytest.mark.parametrize("name", [name for name in table() if find_spec(name.partition(".")[0])])
def test_facts_name_what_a_package_has(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    try:
        value = getattr(importlib.import_module(module), attribute)
    except (ImportError, OSError, RuntimeError) as error:
        pytest.skip(str(error))
    facts = table()[name]
    arguments = inspect.signature(value).parameters
    stated = facts.get("length")
    assert not isinstance(stated, dict) or stated["by"] in arguments
    assert facts["source"].startswith("http")
