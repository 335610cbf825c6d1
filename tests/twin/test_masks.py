from __future__ import annotations

from functools import cache
from pathlib import Path

import cv2
import numpy as np
import pytest

from dexloop.core.camera import Camera
from dexloop.core.errors import InputError, MissingPart, UnknownName
from dexloop.twin import masks
from dexloop.twin.masks import Objects, find_objects, iou, object_from_masks, read_masks, with_masks
from dexloop.twin.sam import Prompt, sam_masks
from dexloop.vision.views import View
from tests.twin import BOXES, Box, path, shoot

CAMERA = Camera.from_fov("phone", 320, 240, 0.85)
BOXES_PX = {1: 4400, 2: 2000}
"""How many pixels show each box, usually."""


@pytest.fixture(autouse=True, scope="module")
def _coarse():
    """Grids as fine as these small pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masks, "_FINE_CELLS", 60)
        patch.setattr(masks, "_TEXELS", 300)
        yield


@cache
def scan() -> tuple[list[View], list[np.ndarray]]:
    shots = [shoot(T, CAMERA, seed=k) for k, T in enumerate(path(24))]
    return [v for v, _ in shots], [label for _, label in shots]


@cache
def found() -> Objects:
    return find_objects(scan()[0])


def test_two_objects_are_found_with_their_outlines() -> None:
    _, labels = scan()
    assert len(found().objects) == len(BOXES)
    for k, thing in enumerate(found().objects, start=1):
        overlap = [iou(m, label == k) for m, label in zip(thing.masks, labels, strict=True)]
        assert np.median(overlap) >= 0.95
        # Where the other one hides most of it, there is little to go by.
        seen = [np.count_nonzero(label == k) > 0.3 * BOXES_PX[k] for label in labels]
        assert min(o for o, s in zip(overlap, seen, strict=True) if s) > 0.85
    assert not found().statuses


def test_masks_of_different_objects_do_not_overlap() -> None:
    first, second = (np.stack(o.masks) for o in found().objects)
    assert not (first & second).any()


def test_the_rough_box_is_where_the_object_is() -> None:
    for thing, box in zip(found().objects, BOXES, strict=True):
        np.testing.assert_allclose(thing.T_world_box[:2, 3], box.at, atol=4e-3)
        np.testing.assert_allclose(sorted(thing.size_m[:2]), sorted(box.size[:2]), atol=8e-3)
        # From above 57 degrees nobody looked: a hull is a little higher than its object.
        assert box.size[2] - 3e-3 < thing.size_m[2] < box.size[2] + 20e-3


def test_the_hull_contains_the_object_and_has_its_colours() -> None:
    thing, box = found().objects[0], BOXES[0]
    corners = box.corners()
    middle = corners.mean(axis=0)
    nearest = [np.min(np.linalg.norm(thing.points - c, axis=1)) for c in middle + 0.97 * (corners - middle)]
    assert max(nearest) < 8e-3
    outwards = np.sum(thing.normals * (thing.points - middle), axis=1)
    assert np.mean(outwards > 0) > 0.95
    hue = cv2.cvtColor(thing.colours[None], cv2.COLOR_RGB2HSV)[0, :, 0].astype(int)
    assert np.mean(np.minimum(hue, 180 - hue) < 20) > 0.9  # red


def test_masks_of_others_are_read(tmp_path: Path) -> None:
    views, labels = scan()
    for view, label in zip(views, labels, strict=True):
        cv2.imwrite(str(tmp_path / f"{view.name}.png"), cv2.resize((label == 1) * np.uint8(255), (640, 480)))
    read = read_masks(tmp_path, views)
    assert all(iou(v.mask, label == 1) > 0.97 for v, label in zip(read, labels, strict=True) if v.mask is not None)
    thing = object_from_masks(read)
    np.testing.assert_allclose(thing.T_world_box[:2, 3], BOXES[0].at, atol=4e-3)
    (tmp_path / "v003.png").unlink()
    with pytest.raises(InputError, match=r"v003\.png"):
        read_masks(tmp_path, views)
    cv2.imwrite(str(tmp_path / "v003.png"), np.zeros((100, 640), np.uint8))
    with pytest.raises(InputError, match="another shape"):
        read_masks(tmp_path, views)


def test_masks_that_contradict_each_other_are_refused() -> None:
    views, labels = scan()
    shuffled = [np.roll(label == 1, 60 * k, axis=1) for k, label in enumerate(labels)]
    with pytest.raises(InputError, match=r"no common object|contradict"):
        object_from_masks(with_masks(views, shuffled))
    with pytest.raises(InputError, match="not all pictures"):
        object_from_masks(views)


def test_an_empty_table_is_said_to_be_empty() -> None:
    views = [shoot(T, CAMERA, (), seed=k)[0] for k, T in enumerate(path(12))]
    with pytest.raises(InputError, match="nothing was found standing on the table"):
        find_objects(views)


def test_an_object_that_moved_during_the_scan_is_said_to_have_moved() -> None:
    places = [Box((0.0, 0.0), (0.06, 0.06, 0.06), 0.0, 0), Box((0.05, 0.03), (0.06, 0.06, 0.06), 0.6, 0)]
    views = [shoot(T, CAMERA, (places[k >= 9],), seed=k)[0] for k, T in enumerate(path(18))]
    # Whether anything can be carved at all depends on how far it went; that it moved is always said.
    try:
        said = [s.code for s in find_objects(views).statuses]
    except InputError as error:
        said = ["object_moved"] if "moved" in str(error) else [str(error)]
    assert set(said) == {"object_moved"}


def test_sam_says_what_is_missing(tmp_path: Path) -> None:
    views, _ = scan()
    weights = tmp_path / "sam2.1_hiera_small.pt"
    prompt = Prompt(views[0].name, (100.0, 80.0, 200.0, 180.0))
    with pytest.raises(InputError, match="does not exist"):
        sam_masks(views, weights, prompt)
    weights.write_bytes(b"")
    with pytest.raises(UnknownName):
        sam_masks(views, weights, Prompt("nowhere", prompt.box_px))
    try:
        import sam2  # noqa: F401
    except ImportError:
        with pytest.raises(MissingPart, match="pip install sam2"):
            sam_masks(views, weights, prompt)
    other = tmp_path / "weights.pt"
    other.write_bytes(b"")
    with pytest.raises(InputError, match="size"):
        sam_masks(views, other, prompt)
