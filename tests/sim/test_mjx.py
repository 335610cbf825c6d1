import mujoco
import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("mujoco.mjx")

from dexloop.core.errors import InputError, NoEffect, UnknownName
from dexloop.sim import mjx
from dexloop.sim.mjx import Sensitivities, sensitivities
from dexloop.sim.roles import roles_of
from dexloop.sim.scene import Scene
from dexloop.sim.world import World
from tests.sim.scenes import push_scene

# A box that a ball on a servo pushes over a table, and an arm swung by another servo. The ball starts apart from the
# box, which lies still: an open contact, and a rotation of exactly zero, are where MJX's own derivatives fail.
BOTH = """
<mujoco>
  <option timestep="0.002" integrator="implicitfast" cone="elliptic" impratio="10"/>
  <default><geom condim="4" solref="0.006 1" solimp="0 0.95 0.001 0.5 2"/></default>
  <worldbody>
    <geom name="table" type="plane" size="1 1 0.1" friction="0.4 0.003 0.0001" priority="1"/>
    <body name="box" pos="0 0 0.03" simple="false">
      <freejoint/>
      <geom name="box" type="box" size="0.03 0.03 0.03" mass="0.12"/>
    </body>
    <body name="pusher" pos="-0.06 0.004 0.02" simple="false">
      <joint name="slide" type="slide" axis="1 0 0" damping="1" armature="0.05"/>
      <geom name="tip" type="sphere" size="0.015" mass="0.2" contype="2" friction="0.2 0.003 0.0001" priority="2"/>
    </body>
    <body name="arm" pos="0 0.5 0.5" simple="false">
      <joint name="elbow" axis="0 1 0" damping="0.05" armature="0.01" frictionloss="0.03"/>
      <geom type="capsule" fromto="0 0 0 0.2 0 0" size="0.02" mass="0.5" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <contact>
    <pair geom1="box" geom2="table" condim="4" friction="0.4 0.4 0.003 0.0001 0.0001" solref="0.006 1"
          solimp="0 0.95 0.001 0.5 2" solreffriction="-1e-9 -150"/>
  </contact>
  <actuator>
    <position name="slide" joint="slide" kp="500" kv="20"/>
    <position name="elbow" joint="elbow" kp="20" kv="1"/>
  </actuator>
</mujoco>
"""
NAMES = (
    "object.mass", "object.com", "table.friction", "pusher.friction", "arm.mass", "actuator.gain", "actuator.damping",
    "joint[slide].damping", "joint[elbow].armature", "joint[elbow].friction",
)  # fmt: skip
RECORD = ("object.pose", "joint.position", "joint.speed", "joint.effort", "actuator.force", "arm.pose", "qvel")
STEPS = 120
# MuJoCo's implicitfast has had derivatives of gyroscopic forces of free bodies since 4.0, MJX 3.17 has not: a box that
# turns about its off-centre mass at 0.3 rad/s differs by 2e-5 rad/s. With MuJoCo's solver run to 1e-14 the rest agrees
# to 1e-8.
TOLERANCE = {name: 1e-4 if name == "qvel" else 1e-5 for name in RECORD}


def scene_of(xml: str) -> Scene:
    spec = mujoco.MjSpec.from_string(xml)
    model = spec.compile()
    return Scene(spec, model, roles_of(model))


@pytest.fixture(scope="module")
def both() -> Scene:
    return scene_of(BOTH)


@pytest.fixture(scope="module")
def engine(both: Scene):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            mjx, "_COMPILER", {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
        )
        made = Sensitivities(both, NAMES, RECORD)
        made(values(made), control())
    return made


@pytest.fixture(scope="module")
def nominal(engine: Sensitivities):
    return engine(values(engine), control())


def control() -> np.ndarray:
    t = np.arange(STEPS) * 0.002
    return np.stack([0.2 * t, 0.4 * np.sin(9.0 * t)], axis=1)


def values(engine: Sensitivities) -> np.ndarray:
    return np.concatenate([p.nominal for p in engine.parameters])


def moved(engine: Sensitivities) -> np.ndarray:
    """Values some way off the model's own, a centre of mass off the middle included."""
    changes = {"object.mass": 1.4, "table.friction": 0.8, "actuator.gain": 1.3, "arm.mass": 0.7}
    found = [p.nominal * changes.get(p.name, 1.0) for p in engine.parameters]
    found[[p.name for p in engine.parameters].index("object.com")] = np.array([0.003, -0.002, 0.004])
    return np.concatenate(found)


def differences(scene: Scene, theta: np.ndarray, step: float = 1e-4) -> tuple[dict, dict]:
    """Signals [t, c] and central differences [t, c, p] in unconstrained coordinates, all in one batch of worlds."""
    size = len(theta)
    world = World(scene, 2 * size + 1, parameters=NAMES)
    ends = np.cumsum([p.size for p in world.parameters])[:-1]
    split = zip(world.parameters, np.split(theta, ends), strict=True)
    free = np.concatenate([p.transform.to_free(value) for p, value in split])
    rows = free + step * np.concatenate([np.zeros((1, size)), np.eye(size), -np.eye(size)])
    split = zip(world.parameters, np.split(rows, ends, axis=1), strict=True)
    world.set(np.concatenate([p.transform.to_value(value) for p, value in split], axis=1))
    out = world.rollout(control(), record=RECORD).require()
    slopes = {n: np.moveaxis(out[n][1 : size + 1] - out[n][size + 1 :], 0, -1) / (2 * step) for n in RECORD}
    return {n: out[n][0] for n in RECORD}, slopes


@pytest.mark.parametrize("where", [values, moved])
def test_signals_and_derivatives_are_those_of_mujoco_in_c(both, engine, where):
    theta = where(engine)
    signals, jacobians = engine(theta, control())
    expected, slopes = differences(both, theta)
    labels = [p.name for p in engine.parameters for _ in range(p.size)]
    assert np.abs(np.diff(expected["object.pose"][:, 0])).max() > 1e-5, "the box is not pushed"
    for name in RECORD:
        np.testing.assert_allclose(signals[name], expected[name], rtol=1e-4, atol=TOLERANCE[name])
        whole = np.linalg.norm(slopes[name])
        assert jacobians[name].shape == (*signals[name].shape, len(labels))
        for k, label in enumerate(labels):
            error = np.linalg.norm(jacobians[name][..., k] - slopes[name][..., k])
            assert error <= 0.01 * np.linalg.norm(slopes[name][..., k]) + 1e-5 * whole, f"{name} by {label}"


def test_every_parameter_has_its_effect_somewhere(engine, nominal):
    _, jacobians = nominal
    assert all(any(np.abs(jacobians[n][..., k]).max() > 1e-7 for n in RECORD) for k in range(len(values(engine))))


def test_values_by_name_and_side_by_side_are_the_same(engine):
    theta = values(engine)
    theta[0] = 0.2
    np.testing.assert_array_equal(engine._checked({"object.mass": 0.2}), theta)
    np.testing.assert_array_equal(engine._checked(theta), theta)


def test_the_initial_state_counts(both, engine):
    qvel = np.zeros(both.model.nv)
    qvel[[1, 7]] = 0.3, -0.5
    qpos = both.model.qpos0.copy()
    qpos[0] = 0.01
    signals, _ = engine(values(engine), control(), qpos=qpos, qvel=qvel)
    world = World(both)
    world.reset(qpos=qpos, qvel=qvel)
    expected = world.rollout(control(), record=RECORD)
    for name in RECORD:
        np.testing.assert_allclose(signals[name], expected[name][0], rtol=1e-4, atol=TOLERANCE[name])


def test_it_is_compiled_once(both, engine, nominal, monkeypatch):
    compiled = engine.compile_s
    assert compiled > 0
    monkeypatch.setitem(mjx._made, both, {(NAMES, RECORD): engine})
    again = sensitivities(both, NAMES, values(engine), control=control(), record=RECORD)
    sensitivities(both, NAMES, moved(engine), control=control()[::-1], record=RECORD)
    assert engine.compile_s == compiled
    for before, after in zip(nominal, again, strict=True):
        np.testing.assert_array_equal(before["object.pose"], after["object.pose"])


def test_double_precision_is_not_forced_on_others(nominal):
    import jax.numpy as jnp

    assert jnp.ones(1).dtype == jnp.float32


def test_model_fields_follow_the_parameters(engine):
    theta = values(engine)
    fields, slopes = engine._linearised(theta)
    labels = [p.name for p in engine.parameters for _ in range(p.size)]
    mass, friction, gain = (labels.index(n) for n in ("object.mass", "table.friction", "actuator.gain"))
    # Of a logarithm: dm / d(log m) = m. A free body's translational inverse weight is 1/m.
    np.testing.assert_allclose(slopes["body_mass"][mass], [0, 0.12, 0, 0], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(fields["body_invweight0"][1, 0], 1 / 0.12, rtol=1e-8)
    np.testing.assert_allclose(slopes["body_invweight0"][mass, 1, 0], -1 / 0.12, rtol=1e-8)
    np.testing.assert_allclose(slopes["geom_friction"][friction, 0, 0], 0.4, rtol=1e-8)
    np.testing.assert_allclose(slopes["actuator_gainprm"][gain, :, 0], [500, 20], rtol=1e-8)
    np.testing.assert_allclose(slopes["actuator_biasprm"][gain, :, 1], [-500, -20], rtol=1e-8)
    np.testing.assert_allclose(slopes["body_ipos"][labels.index("object.com") + 1, 1], [0, 1, 0], atol=1e-8)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"values": {"object.mass": -1.0}}, "object.mass must be from"),
        ({"values": np.ones(3)}, "values takes"),
        ({"control": np.zeros((5, 1))}, r"control takes \[steps, 2\]"),
        ({"control": np.full((STEPS, 2), np.nan)}, "finite"),
        ({"qpos": np.zeros(2)}, "qpos takes"),
        ({"qvel": np.full(8, np.inf)}, "finite"),
    ],
)
def test_bad_inputs_are_refused(engine, given, message):
    whole = {"values": values(engine), "control": control(), **given}
    with pytest.raises(InputError, match=message):
        engine(whole.pop("values"), whole.pop("control"), **whole)


def test_a_name_that_was_not_asked_for_is_refused(engine):
    with pytest.raises(UnknownName, match=r"object\.mass"):
        engine({"object.mas": 0.1}, control())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: setattr(m.opt, "noslip_iterations", 3), "noslip"),
        (lambda m: setattr(m.opt, "integrator", mujoco.mjtIntegrator.mjINT_RK4), "implicitfast"),
        (lambda m: m.actuator_delay.fill(0.01), "delays"),
        (lambda m: m.geom_type.__setitem__(m.geom("table").id, mujoco.mjtGeom.mjGEOM_CYLINDER), "cannot simulate"),
    ],
)
def test_scenes_that_mjx_would_simulate_wrongly_are_refused(change, message):
    scene = push_scene()
    change(scene.model)
    with pytest.raises(InputError, match=message):
        Sensitivities(scene, ["object.mass"])


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("actuator.delay", InputError, "actuator_delay"),
        ("object.inertia", InputError, "principal axes"),
        ("camera.pose", NoEffect, "moves nothing"),
        ("object.colour", UnknownName, "colour"),
    ],
)
def test_parameters_without_a_derivative_are_refused(name, kind, message):
    with pytest.raises(kind, match=message):
        Sensitivities(push_scene(), [name])


def test_no_parameter_and_an_unknown_signal_are_refused():
    with pytest.raises(InputError, match="at least one"):
        Sensitivities(push_scene(), [])
    with pytest.raises(InputError, match="MJX does not give"):
        Sensitivities(push_scene(), ["object.mass"], ["qLD"])


def test_a_buffer_without_a_delay_changes_nothing():
    # Composed scenes have one; MJX leaves it out, which is right as long as nothing is late.
    Sensitivities(push_scene(max_delay_s=0.05), ["object.mass"])
