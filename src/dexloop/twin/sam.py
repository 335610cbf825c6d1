"""Object masks by Segment Anything 2, for machines that have the package `sam2` and its weights.

One box in one picture is enough: the video model carries it through all others. Nothing is downloaded here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from dexloop.core.errors import InputError, MissingPart, UnknownName
from dexloop.vision.views import View

CONFIGS = {
    "tiny": "configs/sam2.1/sam2.1_hiera_t.yaml",
    "small": "configs/sam2.1/sam2.1_hiera_s.yaml",
    "base_plus": "configs/sam2.1/sam2.1_hiera_b+.yaml",
    "large": "configs/sam2.1/sam2.1_hiera_l.yaml",
}
"""The model's description inside the package, by the size that the name of the weights tells."""


@dataclass(frozen=True)
class Prompt:
    """Which object: a box around it in one picture."""

    frame: str
    """The picture's name."""
    box_px: tuple[float, float, float, float]
    """Left, top, right, bottom [px]."""


def sam_masks(
    views: Sequence[View], checkpoint: str | Path, prompt: Prompt, *, device: str | None = None
) -> tuple[Bool[np.ndarray, "h w"], ...]:
    """Returns the mask of one object in every view.

    Args:
        views: In the order of the video; all of one size.
        checkpoint: SAM 2.1 weights, such as `sam2.1_hiera_small.pt`; the name tells the size.
        prompt: Which object.
        device: "cuda", "mps" or "cpu"; the best there is if left out.

    Raises:
        MissingPart: `sam2` is not installed.
        InputError: The weights are not there, or pictures differ in size.
        UnknownName: The prompt names a picture that is not among the views.
    """
    names = [v.name for v in views]
    if prompt.frame not in names:
        raise UnknownName("picture", prompt.frame, names)
    left, top, right, bottom = prompt.box_px
    if not (left < right and top < bottom):
        raise InputError(f"the box {prompt.box_px} is empty: give left, top, right, bottom in pixels")
    if len({v.rgb.shape for v in views}) != 1:
        raise InputError("SAM 2 needs pictures of one size: give a video, or scale the pictures to one size")
    config = _config(Path(checkpoint))
    torch, build = _sam2()
    device = device or ("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
    predictor = build(config, str(checkpoint), device=device)
    start = names.index(prompt.frame)
    with tempfile.TemporaryDirectory(prefix="dexloop-sam-") as folder, torch.inference_mode():
        _write(views, Path(folder))
        state = predictor.init_state(video_path=folder, offload_video_to_cpu=True)
        predictor.add_new_points_or_box(state, frame_idx=start, obj_id=1, box=np.array(prompt.box_px, np.float32))
        found: dict[int, np.ndarray] = {}
        for reverse in (False, True):
            for index, _, logits in predictor.propagate_in_video(state, start_frame_idx=start, reverse=reverse):
                found[int(index)] = (logits[0, 0] > 0.0).cpu().numpy()
    empty = np.zeros(views[0].rgb.shape[:2], bool)
    return tuple(found.get(k, empty) for k in range(len(views)))


def _config(checkpoint: Path) -> str:
    if not checkpoint.is_file():
        raise InputError(
            f"{checkpoint} does not exist: download SAM 2.1 weights as the sam2 package describes, and give their path"
        )
    for size, config in CONFIGS.items():
        if f"hiera_{size}" in checkpoint.stem:
            return config
    raise InputError(
        f"{checkpoint.name} does not tell the model's size: keep the name it was published under "
        f"(sam2.1_hiera_{', sam2.1_hiera_'.join(CONFIGS)})"
    )


def _sam2() -> tuple[Any, Any]:
    try:
        from sam2.build_sam import build_sam2_video_predictor  # pyright: ignore[reportMissingImports]  # isort: skip
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingPart(
            f"masks by SAM 2 need the package sam2 ({error}): pip install sam2, or leave the masks to dexloop"
        ) from error
    return torch, build_sam2_video_predictor


def _write(views: Sequence[View], folder: Path) -> None:
    """The video model reads a folder of JPEG files whose names are numbers."""
    import cv2

    for k, view in enumerate(views):
        cv2.imwrite(str(folder / f"{k:05d}.jpg"), view.rgb[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 98])
