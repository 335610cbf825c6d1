"""A lab: an object on a table, a robot, cameras, and a truth that only the scorer may ask for."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import numpy as np

from dexloop.core import se3
from dexloop.core.camera import Camera
from dexloop.core.capture import Capture
from dexloop.core.errors import InputError
from dexloop.lab.bench import Bench
from dexloop.lab.cfg import LabCfg
from dexloop.lab.human import HumanMotion, grasp_motion
from dexloop.lab.judge import Judge
from dexloop.lab.objects import make
from dexloop.lab.operator import LabOperator
from dexloop.lab.prints import mat_texture
from dexloop.lab.rig import LabRig
from dexloop.lab.truth import Truth, draw
from dexloop.robots.catalog import load
from dexloop.vision.board import Board

BOARD = Board(square_m=0.05, marker_m=0.038)
BOARD_AT = (0.14, 0.22)
"""Where on the mat: far enough from the robot, near enough to the fixed camera [m]."""
CAMERA_FPS = 30.0
CAMERA_PLACE = (np.array([0.44, -0.50, 0.40]), np.array([-0.03, 0.0, 0.09]))
"""Where the fixed camera stands and what it looks at [m]."""


class Lab:
    """The embedded reality.

    Args:
        cfg: Which lab.

    Raises:
        UnknownName: There is no such object or robot.
        InputError: The robot has no arm to bring its hand to the object.
    """

    def __init__(self, cfg: LabCfg = LabCfg()):  # noqa: B008 - frozen
        self.cfg = cfg
        self.object = make(cfg.object)
        self._truth = draw(self.object, cfg.seed)
        self._embodiment = load(cfg.robot)
        if not self._embodiment.arm_joints:
            raise InputError(f"robot {cfg.robot!r} cannot reach the object: put it on an arm, as in {cfg.robot}@wrist")
        self._mat = mat_texture(BOARD, board_at=BOARD_AT)

    def rig(self, session: int = 0) -> LabRig:
        """Returns the bench as the engine sees it, anew: the object is back in its place.

        Args:
            session: Noise of sensors and hands is another in each.
        """
        width, height = self.cfg.picture_px
        eye, target = CAMERA_PLACE
        camera = Camera.from_fov("front", width, height, 0.72, se3.look_at(eye, target))
        bench = Bench(
            self.object,
            self._truth,
            self._embodiment,
            self._mat,
            camera,
            nice=self.cfg.nice,
            seed=self.cfg.seed,
            session=session,
        )
        operator = LabOperator(
            bench,
            self.object,
            self._truth,
            self._mat,
            picture_px=self.cfg.picture_px,
            nice=self.cfg.nice,
            seed=self.cfg.seed,
        )
        return LabRig(
            bench,
            operator,
            name=f"lab/{self.cfg.object}",
            robot=self.cfg.robot,
            camera=camera if self.cfg.video else None,
            camera_fps=CAMERA_FPS,
            tracker=self.cfg.tracker,
            scene=self._public(),
        )

    def truth(self) -> Truth:
        """Returns what a scorer compares with. Nothing that measures or learns may call this."""
        return self._truth

    def otherwise(self, **changes: Any) -> Lab:
        """Returns a lab in which something is otherwise than in this one, as if it had changed after it was measured:
        truth as well, for scoring only.

        Args:
            changes: Fields of `Truth`.
        """
        other = Lab(self.cfg)
        other._truth = replace(self._truth, **changes)
        return other

    def judge(self, rig: LabRig) -> Judge:
        """Returns a witness of what happens at a rig from now on: truth as well, for scoring only."""
        return Judge(rig._bench, self.object)

    def demonstration(self, *, duration_s: float, fps: float) -> HumanMotion:
        """Returns how the hand in `HumanVideo` really moved, joint by joint: truth as well, for scoring only."""
        T = self._truth.T_world_object
        return grasp_motion(self.object.shape, T, duration_s=duration_s, fps=fps, seed=self.cfg.seed)

    @staticmethod
    def of(capture: Capture, seed: int) -> Lab:
        """Returns the lab that a Capture was recorded in, for scoring.

        The Capture tells everything but the seed, from which the truth could be drawn again; whoever scores knows it.

        Raises:
            InputError: It was not recorded in the lab, or in one of another seed.
        """
        recording = next(iter(capture.recordings.values()))
        about = dict(recording.scene.get("lab", {}))
        if not about:
            raise InputError(f"{capture.path} was not recorded in the lab: there is no truth to compare with")
        mark = about.pop("id")
        lab = Lab(LabCfg(**{**about, "picture_px": tuple(about["picture_px"]), "seed": seed}))
        if lab._id() != mark:
            raise InputError(f"{capture.path} was recorded in a lab of another seed than {seed}")
        return lab

    def _id(self) -> str:
        return hashlib.sha256(json.dumps(self._truth.to_json()).encode()).hexdigest()[:16]

    def _public(self) -> dict[str, Any]:
        """What a person at the bench could tell: names, rough sizes and places, and how hard one may squeeze."""
        rng = np.random.default_rng([21, self.cfg.seed])
        T = self._truth.T_world_object
        R = T[:3, :3] @ se3.quat_to_matrix(se3.so3_exp(rng.normal(0.0, 0.03, 3)))
        rough = se3.from_rt(R, T[:3, 3] + rng.normal(0.0, 0.002, 3))
        about = {k: getattr(self.cfg, k) for k in self.cfg.__dataclass_fields__ if k != "seed"}
        return {
            "lab": {**about, "picture_px": list(about["picture_px"]), "id": self._id()},
            "object": self.cfg.object,
            "T_world_object_rough": np.round(rough, 4).tolist(),
            "crush_force_n": self.object.crush_force_n,
            "object_size_m": np.round(np.ptp(self.object.shape.visual.vertices, axis=0), 3).tolist(),
            "table_height_m": 0.0,
            "table_size_m": list(self._mat.size_m),
            "board": BOARD.to_json(),
            "T_world_board": self._mat.T_mat_board.tolist(),
        }
