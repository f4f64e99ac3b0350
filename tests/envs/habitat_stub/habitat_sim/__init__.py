"""Stand-in for habitat-sim 0.3.3 that records calls: a few boxes, an agent among them, and three kinds of pictures.

Ours, for tests; it has no code of theirs. It has the names of 0.3.3 that the adapter uses, and no others: whoever calls
or sets anything else gets an AttributeError. A stage is a file with JSON {"walls": [[x, y, z, x, y, z], ...]}, an
object one with {"box": [width, height, depth]}. HABITAT_STUB_RECORD names the file of the record, HABITAT_STUB says
what goes wrong, if anything.
"""

import enum
import json
import math
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import magnum as mn
import numpy as np

WRONG, _, WHEN = os.environ.get("HABITAT_STUB", "").partition(":")
__version__ = "0.2.5" if WRONG == "version" else "0.3.3"
built_with_bullet = WRONG != "no bullet"
stage_id = 0


def plain(value):
    """As JSON."""
    if isinstance(value, mn.Vector3):
        return [value[i] for i in range(3)]
    if isinstance(value, mn.Vector2i):
        return [value[i] for i in range(2)]
    if isinstance(value, mn.Quaternion):
        return [*plain(value.vector), value.scalar]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, dict)):
        return [plain(one) for one in value]
    if isinstance(value, enum.Enum):
        return value.name
    return value if isinstance(value, (int, float, str, bool, type(None))) else type(value).__name__


def record(name, *values):
    with Path(os.environ["HABITAT_STUB_RECORD"]).open("a") as file:
        file.write(json.dumps([name, *map(plain, values)]) + "\n")


record("process", os.getpid())
if WRONG == "print":
    print("habitat-sim says hello")
    os.write(1, b"so does its C++\n")


class Record:
    """An object whose settings are those that are named, and recorded."""

    SETTINGS = ()

    def __setattr__(self, name, value):
        if name not in self.SETTINGS:
            raise AttributeError(f"{type(self).__name__} of habitat-sim 0.3.3 has no {name}")
        record(f"{type(self).__name__}.{name}", value)
        object.__setattr__(self, name, value)


class SimulatorConfiguration(Record):
    SETTINGS = ("scene_id", "gpu_device_id", "allow_sliding", "enable_physics", "physics_config_file")


class SensorType(enum.Enum):
    COLOR, DEPTH, SEMANTIC = range(3)


class SensorSubType(enum.Enum):
    PINHOLE = 0


class CameraSensorSpec(Record):
    SETTINGS = ("uuid", "sensor_type", "sensor_subtype", "resolution", "position", "hfov")


class AgentConfiguration(Record):
    SETTINGS = ("height", "radius", "sensor_specifications", "action_space")


class ActuationSpec:
    def __init__(self, amount, constraint=None):
        self.amount, self.constraint = amount, constraint


class ActionSpec:
    def __init__(self, name, actuation):
        record("ActionSpec", name, actuation.amount, actuation.constraint)
        self.name, self.actuation = name, actuation


class NavMeshSettings(Record):
    SETTINGS = ("agent_radius", "agent_height", "agent_max_climb", "include_static_objects")

    def set_defaults(self):
        record("NavMeshSettings.set_defaults")


class MotionType(enum.Enum):
    STATIC, KINEMATIC, DYNAMIC = range(3)


class AgentState:
    def __init__(self):
        self.position, self.rotation, self.sensor_states = None, None, {}


class Quat:
    """As of numpy-quaternion: what habitat-sim has for poses."""

    def __init__(self, coefficients):
        self.coefficients = [float(value) for value in coefficients]


class Configuration:
    def __init__(self, sim_cfg, agents):
        self.sim_cfg, self.agents = sim_cfg, agents


agent = SimpleNamespace(AgentConfiguration=AgentConfiguration, ActionSpec=ActionSpec, ActuationSpec=ActuationSpec)
physics = SimpleNamespace(MotionType=MotionType)
utils = SimpleNamespace(
    common=SimpleNamespace(quat_from_coeffs=Quat, quat_to_coeffs=lambda quat: np.array(quat.coefficients))
)


def rotation_of(x, y, z, w):
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


class Body:
    """A managed rigid object: a box around its origin."""

    def __init__(self, object_id, size):
        vars(self).update(object_id=object_id, half=np.array(size) / 2, translation=mn.Vector3(0, 0, 0))
        vars(self).update(rotation=mn.Quaternion([0, 0, 0], 1), motion_type=MotionType.DYNAMIC, semantic_id=0)

    def __setattr__(self, name, value):
        if name not in ("translation", "rotation", "motion_type", "semantic_id"):
            raise AttributeError(f"rigid objects of habitat-sim 0.3.3 have no {name}")
        if self.motion_type is MotionType.STATIC and name in ("translation", "rotation"):
            return  # as habitat-sim does
        record(f"body.{name}", value)
        vars(self)[name] = value

    @property
    def root_scene_node(self):
        ends = (mn.Vector3(*-self.half), mn.Vector3(*self.half))
        return SimpleNamespace(cumulative_bb=SimpleNamespace(min=ends[0], max=ends[1]))

    @property
    def transformation(self):
        return mn.Matrix4(rotation_of(*plain(self.rotation)), np.array(plain(self.translation)))


class Template:
    def __init__(self, size):
        self.size, self.scale = size, mn.Vector3(1, 1, 1)


class ObjectTemplates:
    def __init__(self):
        self._by_handle, self._handles = {"cubeWireframe": [2.0, 2.0, 2.0]}, []

    def load_configs(self, path):
        record("load_configs", path)
        self._by_handle[path] = json.loads(Path(path).read_text())["box"]
        self._handles.append(path)
        return [len(self._handles) - 1]

    def get_template_handle_by_id(self, number):
        return self._handles[number]

    def get_template_handles(self, part):
        record("get_template_handles", part)
        return [handle for handle in self._by_handle if part in handle]

    def get_template_by_handle(self, handle):
        return Template(self._by_handle[handle])

    def register_template(self, template, handle):
        record("register_template", template.scale, handle)
        self._by_handle[handle] = [side * template.scale[axis] for axis, side in enumerate(template.size)]

    def size(self, handle):
        return self._by_handle[handle]


class RigidObjects:
    def __init__(self, templates):
        self._templates, self.bodies, self._next = templates, {}, 1

    def add_object_by_template_handle(self, handle):
        record("add_object_by_template_handle", handle)
        body = Body(self._next + 40, self._templates.size(handle))
        self.bodies[body.object_id] = body
        self._next += 1
        return body

    def remove_object_by_id(self, object_id):
        record("remove_object_by_id", object_id)
        del self.bodies[object_id]


class Agent:
    def __init__(self, simulator, configuration):
        self._simulator, self._configuration = simulator, configuration
        self._position, self._turn, self._tilt, self._acts = np.zeros(3), 0.0, 0.0, 0
        camera = SimpleNamespace(unproject=self._unproject)
        sensors = SimpleNamespace(get=lambda uuid: SimpleNamespace(render_camera=camera))
        self.scene_node = SimpleNamespace(node_sensor_suite=sensors)

    def _axes(self):
        """Right, up and forward of the cameras."""
        turn = rotation_of(0, math.sin(self._turn / 2), 0, math.cos(self._turn / 2))
        tilt = rotation_of(math.sin(self._tilt / 2), 0, 0, math.cos(self._tilt / 2))
        axes = turn @ tilt
        return axes[:, 0], axes[:, 1], -axes[:, 2]

    def _unproject(self, pixel):
        record("unproject", pixel)
        size = self._configuration.sensor_specifications[0].resolution[0]
        right, up, ahead = self._axes()
        along = ahead + (2 * pixel[0] / size - 1) * right - (2 * pixel[1] / size - 1) * up
        return SimpleNamespace(origin=self.eye(), direction=along / np.linalg.norm(along))

    def eye(self):
        return self._position + self._configuration.sensor_specifications[0].position

    def set_state(self, state, reset_sensors):
        record("set_state", state.position, state.rotation.coefficients, reset_sensors)
        _, y, _, w = state.rotation.coefficients
        self._position, self._turn = np.array(state.position, np.float64), 2 * math.atan2(y, w)
        self._tilt = 0.0 if reset_sensors else self._tilt

    def get_state(self):
        state = AgentState()
        state.position = self._position.copy()
        state.rotation = Quat([0, math.sin(self._turn / 2), 0, math.cos(self._turn / 2)])
        turn = mn.Quaternion([0, math.sin(self._turn / 2), 0], math.cos(self._turn / 2))
        camera = turn * mn.Quaternion([math.sin(self._tilt / 2), 0, 0], math.cos(self._tilt / 2))
        for sensor in self._configuration.sensor_specifications:
            state.sensor_states[sensor.uuid] = SimpleNamespace(rotation=Quat(plain(camera)))
        return state

    def act(self, action):
        record("act", action)
        self._acts += 1
        if WRONG and str(self._acts) == WHEN:
            self._go_wrong()
        actuation = self._configuration.action_space[action].actuation
        radians = math.radians(actuation.amount)
        if action == "move_forward":
            return self._step(actuation.amount)
        if action.startswith("turn"):
            self._turn += radians if action == "turn_left" else -radians
        else:
            most = math.radians(actuation.constraint)
            self._tilt = min(most, max(-most, self._tilt + (radians if action == "look_up" else -radians)))
        return False

    def _go_wrong(self):
        if WRONG == "die":
            sys.stderr.write("a first line\nout of graphics memory\n")
            os._exit(7)
        if WRONG == "hang":
            time.sleep(1000)
        if WRONG == "raise":
            raise RuntimeError("the mesh is broken")
        if WRONG == "print":
            os.write(1, b"a warning of the renderer\n")

    def _step(self, amount):
        wanted = amount * np.array([-math.sin(self._turn), 0, -math.cos(self._turn)])
        for axis in (0, 2):
            moved = self._position.copy()
            moved[axis] += wanted[axis]
            if self._simulator.navigable(moved):
                self._position = moved
        return False


class Simulator:
    def __init__(self, configuration):
        record("Simulator")
        self._configuration, self.pathfinder, self._obstacles = configuration, SimpleNamespace(), []
        stage = json.loads(Path(configuration.sim_cfg.scene_id).read_text())
        self._walls = np.array(stage["walls"], np.float64).reshape(-1, 2, 3)
        self._templates = ObjectTemplates()
        self._objects = RigidObjects(self._templates)
        self._agent = Agent(self, configuration.agents[0])

    def get_agent(self, number):
        return [self._agent][number]

    def get_object_template_manager(self):
        return self._templates

    def get_rigid_object_manager(self):
        return self._objects

    def recompute_navmesh(self, pathfinder, settings):
        record("recompute_navmesh")
        static = [body for body in self._objects.bodies.values() if body.motion_type is MotionType.STATIC]
        boxes = [(np.array(plain(body.translation)), body.half) for body in static]
        self._obstacles = [(middle - half, middle + half) for middle, half in boxes] + list(self._walls)
        return WRONG != "no floor"

    def navigable(self, position):
        settings = 0.18
        for low, high in self._obstacles:
            beside = np.maximum(np.maximum(low - position, position - high), 0)[[0, 2]]
            if np.hypot(*beside) < settings:
                return False
        return True

    def _meet(self, origin, along):
        """Depths [things, rays] along rays [rays, 3] at which they enter walls and bodies, and who these are."""
        things = [(0, 0, np.eye(3), (low + high) / 2, (high - low) / 2) for low, high in self._walls]
        for body in self._objects.bodies.values():
            turn, middle = rotation_of(*plain(body.rotation)), np.array(plain(body.translation))
            things.append((body.object_id, body.semantic_id, turn, middle, body.half))
        depths = np.empty((len(things), len(along)))
        for row, (_, _, turn, middle, half) in enumerate(things):
            start, each = turn.T @ (origin - middle), along @ turn
            with np.errstate(divide="ignore", invalid="ignore"):
                a, b = (-half - start) / each, (half - start) / each
            entry, leave = np.fmin(a, b).max(1), np.fmax(a, b).min(1)
            depths[row] = np.where((entry <= leave) & (leave > 0), np.maximum(entry, 0), np.inf)
        return depths, [thing[:2] for thing in things]

    def cast_ray(self, ray, max_distance):
        record("cast_ray", max_distance)
        depths, things = self._meet(ray.origin, ray.direction[None])
        hits = [
            SimpleNamespace(object_id=number, ray_distance=float(depth))
            for (number, _), depth in zip(things, depths[:, 0])  # noqa: B905
            if depth <= max_distance
        ]
        return SimpleNamespace(hits=hits, has_hits=lambda: bool(hits))

    def get_sensor_observations(self):
        record("get_sensor_observations")
        sensors = self._configuration.agents[0].sensor_specifications
        size = sensors[0].resolution[0]
        right, up, ahead = self._agent._axes()
        across = (2 * np.arange(size) + 1 - size) / size
        along = ahead + across[None, :, None] * right - across[:, None, None] * up
        depths, things = self._meet(self._agent.eye(), along.reshape(-1, 3))
        nearest, depth = depths.argmin(0), depths.min(0)
        semantic = np.array([number for _, number in things], np.uint32)[nearest] * np.isfinite(depth)
        seen = {}
        for sensor in sensors:
            if sensor.sensor_type is SensorType.SEMANTIC:
                seen[sensor.uuid] = semantic.reshape(size, size).astype(np.uint32)
            elif sensor.sensor_type is SensorType.DEPTH:
                seen[sensor.uuid] = np.where(np.isfinite(depth), depth, 0).reshape(size, size).astype(np.float32)
            else:
                shade = np.minimum(depth * 40, 255)
                rgba = np.stack([semantic * 37 % 256, semantic * 91 % 256, shade, np.full(len(shade), 255)], 1)
                seen[sensor.uuid] = rgba.reshape(size, size, 4).astype(np.uint8)
        return seen

    def close(self):
        record("close")
