"""The command line, as a person or a script would use it."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import typing

import numpy as np
import pytest
from PIL import Image

from dexloop import cli


def run(capsys, *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(args)
    out = capsys.readouterr()
    return ended.value.code or 0, out.out, out.err


def run_json(capsys, *args: str) -> tuple[int, dict]:
    code, out, _ = run(capsys, *args, "--json")
    return code, json.loads(out)


def names_of(union) -> list[str]:
    """The subcommands there are."""
    configs = [m for one in typing.get_args(union) for m in one.__metadata__]
    return [m.name for m in configs if getattr(m, "name", None)]


COMMANDS = [[], *([name] for name in names_of(cli.Commands)), *(["capture", n] for n in names_of(cli.CaptureVerbs))]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_explains(capsys, words):
    code, out, _ = run(capsys, *words, "--help")
    assert code == 0
    assert " ".join(["usage: dexloop", *words]) in " ".join(out.split())


def test_every_line_that_the_docs_show_is_understood(repository):
    files = [repository / "README.md", *sorted((repository / "docs").glob("*.md"))]
    blocks = [block for file in files for block in re.split(r"^ *```.*$", file.read_text(), flags=re.MULTILINE)[1::2]]
    lines = re.findall(r"^\s*(?:\S*/)?dexloop ([^#\n]*)", "\n".join(blocks), re.MULTILINE)
    shown = [shlex.split(line.replace("...", "")) for line in lines]
    shown = [words for words in shown if not any(w.startswith("--tyro") or w in ("-h", "--help") for w in words)]
    assert {"deploy", "audit", "loop", "replay", "report"} <= {words[0] for words in shown}
    for words in shown:
        found = cli._parsed(words, False)
        assert found.run is not None
    loop = cli._parsed(shlex.split("loop RUN --object meat_can --seed 7 --trial-seed 3"), False)
    assert (loop.lab.seed, loop.cfg.trial_seed) == (7, 3)


@pytest.mark.parametrize("other", [["--seed", "8"], ["--object", "cube"], ["--trial-seed", "1"]], ids=" ".join)
def test_a_loop_goes_on_in_the_lab_in_which_it_was_begun(capsys, tmp_path, monkeypatch, other):
    from dexloop import loop

    monkeypatch.setattr(loop, "loop", lambda *_, **__: [])
    words = ["loop", str(tmp_path / "run"), "--object", "meat_can", "--seed", "7"]
    for _ in range(2):
        assert run(capsys, *words)[0] == 0
    code, _, err = run(capsys, *words, *other)
    assert code == 2
    assert "start it in another folder" in " ".join(err.split())


def test_help_loads_nothing_heavy():
    program = (
        "import sys\nfrom dexloop import cli\n"
        "try:\n    cli.main(['capture', 'push', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'mujoco', 'scipy', 'av', 'cv2', 'pyarrow', 'mink', 'ompl', 'trimesh', 'matplotlib', 'mediapipe'}\n"
        "sys.exit(repr(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_completion_can_be_printed():
    done = subprocess.run(
        [sys.executable, "-m", "dexloop.cli", "--tyro-print-completion", "bash"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert "capture" in done.stdout


def test_robots_lists_and_describes(capsys, tmp_path):
    code, listed = run_json(capsys, "robots")
    assert code == 0
    assert {"dex16", "gripper", "arm7", "dex16@arm7"} <= set(listed["robots"])
    picture = tmp_path / "robot.png"
    code, robot = run_json(capsys, "robots", "dex16@wrist", "--picture", str(picture))
    assert code == 0
    assert len(robot["joints"]) == 22
    assert robot["findings"] == []
    with Image.open(picture) as image:
        seen = np.asarray(image)
    assert (seen.min(axis=-1) < 200).mean() > 0.03, "there is a robot in the picture"
    assert "fingertips: index" in run(capsys, "robots", "dex16")[1]


def test_an_unknown_robot_is_one_line_that_lists_the_choices(capsys):
    code, out, err = run(capsys, "robots", "dex17")
    assert code == 2
    assert out == ""
    assert "did you mean 'dex16'" in err
    assert "Traceback" not in err
    code, told = run_json(capsys, "robots", "dex17")
    assert (code, told["kind"]) == (2, "UnknownName")


def test_lab_describes_itself_and_hides_its_truth(capsys, tmp_path):
    picture = tmp_path / "lab.png"
    code, lab = run_json(capsys, "lab", "--object", "spread_jar", "--seed", "3", "--picture", str(picture))
    assert code == 0
    assert len(lab["objects"]) == 8
    assert "truth" not in lab
    with Image.open(picture) as image:
        assert image.size == (640, 480)
    code, lab = run_json(capsys, "lab", "--object", "spread_jar", "--seed", "3", "--truth")
    assert 0.6 * 0.414 <= lab["truth"]["mass_kg"] <= 1.4 * 0.414
    assert "meat_can" in run(capsys, "lab")[1]


def test_capture_push_and_show(capsys, tmp_path):
    out = tmp_path / "push"
    words = [
        "capture",
        "push",
        "--out",
        str(out),
        "--no-video",
        "--speed-m-s",
        "0.3",
        "--object",
        "cube",
        "--repeat",
        "2",
    ]
    code, made = run_json(capsys, *words)
    assert code == 0
    assert [r["name"] for r in made["recordings"]] == ["push_1", "push_2"]
    assert made["recordings"][0]["plan"]["speed_m_s"] == 0.3
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "exists already" in err
    code, text, _ = run(capsys, "capture", "show", str(out), "--picture", str(tmp_path / "push.png"))
    assert code == 0
    assert "push_1" in text
    assert (tmp_path / "push.png").stat().st_size > 10_000


def test_capture_from_a_rig_of_ones_own(capsys, tmp_path, monkeypatch):
    (tmp_path / "bench.py").write_text(
        "from dexloop.lab import Lab, LabCfg\ndef rig():\n    return Lab(LabCfg(object='cube', video=False)).rig()\n"
        "def broken():\n    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    code, made = run_json(
        capsys, "capture", "free-motion", "--rig", "bench:rig", "--duration-s", "1", "--out", str(tmp_path / "c")
    )
    assert code == 0
    assert made["recordings"][0]["name"] == "free_motion"
    for rig, words in (("bench:none", "none"), ("bench:broken", "lacks methods"), ("nothing", "MODULE:FUNCTION")):
        code, _, err = run(capsys, "capture", "push", "--rig", rig, "--out", str(tmp_path / "d"))
        assert code == 2
        assert words in err


def test_capture_import(capsys, tmp_path):
    source = tmp_path / "mine"
    source.mkdir()
    (source / "capture.toml").write_text(
        '[streams.pose]\nkind = "pose"\nfile = "pose.csv"\nclock = "camera"\nabout = "object"\n'
    )
    rows = "\n".join(f"{k / 50},{k * 1e-3},0,0.02,1,0,0,0" for k in range(60))
    (source / "pose.csv").write_text(f"t,x,y,z,qw,qx,qy,qz\n{rows}\n")
    code, made = run_json(capsys, "capture", "import", str(source), "--out", str(tmp_path / "c"))
    assert code == 0, made
    assert made["recordings"][0]["streams"][0]["name"] == "pose"
    code, _, err = run(capsys, "capture", "import", str(tmp_path / "absent"), "--out", str(tmp_path / "d"))
    assert code == 2
    assert "absent" in err
    code, _, err = run(capsys, "capture", "import", "--out", str(tmp_path / "d"))
    assert code == 2
    assert "nothing to import" in err
    code, _, err = run(capsys, "capture", "import", str(source), "--units", "deg", "--out", str(tmp_path / "d"))
    assert code == 2
    assert "NAME=UNIT" in err


def test_a_failed_recording_has_its_own_exit_code(capsys, tmp_path, monkeypatch):
    """The object is not where the rig says: the push misses it, and the capture says so."""
    from dexloop.lab.lab import Lab

    public = Lab._public
    elsewhere = np.eye(4)
    elsewhere[:3, 3] = [0.1, -0.2, 0.03]
    monkeypatch.setattr(Lab, "_public", lambda self: {**public(self), "T_world_object_rough": elsewhere.tolist()})
    code, made = run_json(capsys, "capture", "push", "--no-video", "--out", str(tmp_path / "c"))
    assert code == 3
    assert made["status"]["code"] == "motionless"


def test_replaying_a_diverged_world(capsys, tmp_path):
    from dexloop.sim.world import World
    from tests.sim.scenes import push_control, push_scene

    world = World(push_scene(), 1, dumps=tmp_path)
    world.engine.field("qvel")[0] = 1e13
    dump = world.rollout(push_control(20)).dumps[0]
    code, told = run_json(capsys, "replay-dump", str(dump))
    assert (code, told["again"]) == (0, True)


def test_a_case_is_drawn_or_it_is_said_why_not(capsys, tmp_path, monkeypatch):
    from dexloop.audit import replaying
    from tests.audit.channels import made

    rng = np.random.default_rng(0)
    row = {"case": 1, "signature": "held"}
    found = replaying.Replayed(row, made(1, rng), made(4, rng), [], [], None)
    monkeypatch.setattr(replaying, "replay_case", lambda *_: found)
    words = ["replay", str(tmp_path / "ledger"), "--picture"]
    assert run(capsys, *words, str(tmp_path / "case.png"))[0] == 0
    assert (tmp_path / "case.png").stat().st_size > 10_000
    code, _, err = run(capsys, *words, str(tmp_path / "missing" / "case.png"))
    assert code == 2
    assert "mistake of dexloop" not in err


def test_an_audit_is_about_what_was_believed_when_it_was_deployed(capsys, tmp_path, monkeypatch):
    """After further pushes that is no longer the run's first belief."""
    from dexloop.audit import ledger, stage
    from dexloop.core.artifact import writing
    from dexloop.core.artifacts import Belief, Episodes, Policy, Twin
    from dexloop.core.run import Run

    folder = Run.create(tmp_path / "run").path
    made = {}
    for place, kind in (("2_twin", Twin), ("3_identify", Belief), ("push_1/3_identify", Belief), ("6_train", Policy)):
        with writing(folder / place, kind) as draft:
            for name in kind.required:
                (draft.folder / name).write_text(place)
        made[place] = kind.open(folder / place)
    with writing(folder / "7_deploy", Episodes, inputs={"belief": made["push_1/3_identify"]}):
        pass
    taken = []
    monkeypatch.setattr(stage, "audit", lambda *given, **_: taken.append(given[3].path) or made["3_identify"])
    monkeypatch.setattr(ledger, "read", lambda _path: [])
    monkeypatch.setattr("dexloop.report.page.write_report", lambda _run: None)
    code, _, err = run(capsys, "audit", str(folder))
    assert (code, taken) == (0, [folder / "push_1" / "3_identify"])
    assert "is not there" not in err
    shutil.rmtree(folder / "push_1")
    code, _, err = run(capsys, "audit", str(folder))
    assert (code, taken[1:]) == (0, [folder / "3_identify"])
    assert "is not there" in " ".join(err.split())


def test_demo_runs_goes_on_and_leaves_pictures(tmp_path, monkeypatch):
    from dexloop import demo, loop
    from dexloop.audit.cfg import AuditCfg
    from dexloop.capture.plans import HumanVideo, Push
    from dexloop.demonstrate.cfg import DemonstrateCfg
    from dexloop.deploy.cfg import DeployCfg
    from dexloop.identify.cfg import IdentifyCfg
    from dexloop.lab.known_twin import known_twin
    from dexloop.loop_cfg import LoopCfg
    from dexloop.train.cfg import TrainCfg

    # A scan takes a minute, and has tests of its own: here the shape is given.
    monkeypatch.setattr(loop, "twin", lambda recorded, path, **_: known_twin(recorded, path))
    plans = (Push(speed_m_s=0.3, distance_m=0.05, settle_s=0.2), HumanVideo(fps=15.0))
    told: list[str] = []
    out = tmp_path / "demo"
    cfgs = loop.Cfgs(
        identify=IdentifyCfg(parameters=("object.mass", "table.friction", "fingertip.friction"), samples=8),
        demonstrate=DemonstrateCfg(tries=40, holds=2, worlds=2, episodes=4, keep=0.5),
        train=TrainCfg(epochs=2, rounds=0),
        deploy=DeployCfg(hold_s=0.2, shake_s=0.2),
        audit=AuditCfg(worlds=2, bands=3),
    )
    cfg = LoopCfg(rounds=1, trials=1, pushes=0, guess=False)
    tell = lambda text, _: told.append(text)  # noqa: E731
    again = {
        "object_name": "cube",
        "seed": 2,
        "progress": tell,
        "nice": False,
        "cfg": cfg,
        "cfgs": cfgs,
        "plans": plans,
    }
    summary = demo.demo(out, **again)
    assert "in truth" in summary["mass"]
    for name in (
        "push.png",
        "push.mp4",
        "report.html",
        "1_capture/artifact.json",
        "3_identify/posterior.npz",
        "4_demonstrate/demos.npz",
        "4_demonstrate/holds.png",
        "6_train/weights.safetensors",
        "7_deploy/trials/01/artifact.json",
        "8_audit/traces/01.npz",
    ):
        assert (out / name).stat().st_size > 5_000
    assert "push" in told
    assert "ways to hold cube hold in simulation" in summary["demonstrations"]
    page = (out / "report.html").read_text()
    assert "<h2>demonstrate</h2>" in page
    assert "<h2>train</h2>" in page
    assert "<h2>audit, round 1</h2>" in page
    assert "of 1; in simulation" in summary["round 1"]
    ledger, decided = ((out / name).read_text() for name in ("8_audit/ledger.jsonl", "decisions.jsonl"))
    assert len(ledger.splitlines()) == len(json.loads((out / "data.json").read_text())["ledger"]) == 1
    told.clear()
    demo.demo(out, **again)
    assert told == ["drawing", "drawing"], "what is done is not done again"
    assert [(out / name).read_text() for name in ("8_audit/ledger.jsonl", "decisions.jsonl")] == [ledger, decided]


@pytest.mark.parametrize("opened", [True, False])
def test_view_serves_a_run_until_ctrl_c(capsys, tmp_path, monkeypatch, opened):
    import urllib.request

    from dexloop import show
    from tests.view.runs import run_with_twin

    pytest.importorskip("viser", reason="the viewer needs viser")
    run_with_twin(tmp_path / "run")
    answers, pages = [], []

    class Waiting:
        def wait(self):
            url = json.loads(capsys.readouterr().out)["url"]
            with urllib.request.urlopen(url, timeout=20) as answer:
                answers.append(answer.status)
            raise KeyboardInterrupt

    monkeypatch.setattr(show, "wait_for_ever", Waiting().wait)
    monkeypatch.setattr(show.webbrowser, "open", pages.append)
    words = ["view", str(tmp_path / "run"), "--port", "0", "--json", *([] if opened else ["--no-open"])]
    code, out, _ = run(capsys, *words)
    assert (code, out) == (0, ""), "nothing but the address is printed"
    assert answers == [200]
    assert len(pages) == opened


def test_view_of_a_run_without_a_twin_says_how_to_make_one(capsys, tmp_path):
    from dexloop.core.run import Run

    Run.create(tmp_path / "run")
    code, _, err = run(capsys, "view", str(tmp_path / "run"))
    assert code == 2
    assert "has no twin" in err


def test_ctrl_c_is_one_line(tmp_path):
    program = (
        "import sys\nfrom dexloop import cli\nimport dexloop.show\n"
        "def stop(*a, **k): raise KeyboardInterrupt\ndexloop.show.robots = stop\ncli.main(['robots'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env={**os.environ}, cwd=tmp_path
    )
    assert done.returncode == 130
    assert "stopped by the user" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["lab", "--seed", "-1"],
        ["lab", "--picture-px", "0", "0"],
        ["lab", "--seed", "abc"],
        ["nonsense"],
        ["capture"],
        ["capture", "free-motion", "--duration-s", "-1"],
        ["capture", "press", "--force-n", "-1"],
        ["capture", "scan", "--duration-s", "0"],
        ["capture", "push", "--out", "/proc/none/x", "--no-video"],
        ["capture", "push", "--out", "n" * 300, "--no-video"],
        ["robots", "dex16", "--picture", "/proc/none/y.png"],
        ["demo", "--object", "teapot", "--out", "never"],
        ["replay-dump", "absent.npz"],
        ["capture", "show", "absent"],
        ["view", "absent"],
    ],
)
def test_bad_input_is_one_answer_in_json_and_leaves_nothing(capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    code, told = run_json(capsys, *words)
    assert code == 2
    assert told["error"]
    assert "mistake of dexloop" not in told["error"]
    assert not list(tmp_path.iterdir())


def test_a_mistake_of_ours_is_owned(capsys, monkeypatch):
    import dexloop.show

    monkeypatch.setattr(dexloop.show, "robots", lambda *a, **k: 1 / 0)
    code, _, err = run(capsys, "robots")
    assert code == 1
    assert "ZeroDivisionError" in err
    assert "DEXLOOP_DEBUG=1" in err
    monkeypatch.setenv("DEXLOOP_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["robots"])


def test_a_changed_capture_is_not_shown_as_if_it_were_whole(capsys, tmp_path, lab_capture):
    import shutil

    copy = tmp_path / "c"
    shutil.copytree(lab_capture.path, copy)
    file = copy / "recordings" / "push" / "streams" / "touch.npz"
    with np.load(file) as data:
        np.savez(file, t=data["t"], value=2 * data["value"])
    code, _, err = run(capsys, "capture", "show", str(copy))
    assert code == 2
    assert "was changed after it was written: recordings/push/streams/touch.npz" in err


def test_version(capsys):
    assert run(capsys, "--version")[:2] == (0, "dexloop 0.1.0\n")


def test_a_reader_that_goes_away_is_no_error():
    program = f"{sys.executable} -m dexloop.cli lab --no-video | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
