"""A house in habitat-sim on the far side of two pipes; `envs.housekeep.habitat.children` is the near side.

    stdin   requests, a FRAME each ──> the simulator
    stdout  first what was found here, then an answer for each request, a FRAME each

A FRAME is the length of a header in four bytes, most significant first, the header as JSON, and the bytes of the arrays
that it lists. Run as `child.py` by a Python that has habitat-sim 0.3.3, which is one of version 3.9 and has none of
Cairn's packages: nothing of Cairn is imported here, and nothing newer than 3.9 is used. It ends when stdin does, so it
does not outlive who started it. Not run on habitat-sim itself: tested on a stand-in that records the calls.

Requests, by their word `do`:

    load            a scene, as `scene` describes it           the instances that are there now
    reset           all is as at first                         sight
    sense           nothing happens                            sight
    act             0 to 4, the actions but the last           sight, and whether the player collided
    aim             how far, whether through walls             the instance in the middle of the picture, 0 for none,
                                                               and metres from the player to each instance, on the plan
    lift            an object, 10 m up, where nobody sees it   sight
    drop            an object, on top of a piece               sight, and whether there was room
    close           the simulator ends

Sight is the position and rotation of the camera, and pictures: `ids`, and `rgb` and `depth` where wanted. Pieces of
furniture are instances from 1 on, objects from 128 on. Physics is never stepped.
"""

from __future__ import annotations

import json
import math
import os
import struct
import sys
import traceback
from typing import Any, BinaryIO, NamedTuple

import numpy as np

LENGTH = struct.Struct(">I")
LONGEST = 1 << 20
"""Bytes of a header: what claims more is no frame."""
ACTIONS = ("move_forward", "turn_left", "turn_right", "look_up", "look_down")
OBJECT = 128
"""Instances from here on are objects."""
EYE, RADIUS, HEIGHT, CLIMB = 1.5, 0.18, 1.5, 0.1
STRIDE, TURN, LOOK, MOST_LOOK = 0.25, 20.0, 10.0, 30.0
NEAREST, FARTHEST = 0.5, 5.0
"""Metres of a depth of 0 and of 1."""
AWAY = 10.0
"""Metres above the player where a held object waits."""
PAD = 0.002
"""Metres between two objects on a piece."""


def pack(header: dict[str, Any], arrays: dict[str, Any] | None = None) -> bytes:
    """A frame."""
    arrays = arrays or {}
    listed = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    text = json.dumps({**header, "arrays": listed}).encode()
    return b"".join(
        [LENGTH.pack(len(text)), text, *(np.ascontiguousarray(array).tobytes() for array in arrays.values())]
    )


def arrays_of(header: dict[str, Any]) -> list[tuple[str, Any, tuple[int, ...]]]:
    """Name, dtype and shape of each array that follows a header."""
    return [(name, np.dtype(dtype), tuple(shape)) for name, dtype, shape in header["arrays"]]


class Box(NamedTuple):
    """Of an instance, in the world: metres, y is up."""

    low: Any  # float64 [3]
    high: Any
    points: Any  # float64 [9, 3], its corners and its origin


class Shelf:
    """The top of a piece, on which footprints lie in rows.

    Args:
        box: of the piece.
    """

    def __init__(self, box: Box) -> None:
        self._low, self._high = (float(box.low[0]), float(box.low[2])), (float(box.high[0]), float(box.high[2]))
        self.top = float(box.high[1])
        self.taken: dict[int, tuple[float, float, float, float]] = {}  # by instance: x and z from, x and z to

    def room(self, width: float, depth: float) -> tuple[float, float, bool] | None:
        """The first free place: x and z of its middle, and whether the object lies there turned by 90 degrees."""
        for along, across, turned in ((width, depth, False), (depth, width, True)):
            for z in sorted([self._low[1], *(rect[3] + PAD for rect in self.taken.values())]):
                for x in sorted([self._low[0], *(rect[2] + PAD for rect in self.taken.values())]):
                    if self._free(x, z, x + along, z + across):
                        return x + along / 2, z + across / 2, turned
        return None

    def _free(self, x0: float, z0: float, x1: float, z1: float) -> bool:
        if x1 > self._high[0] or z1 > self._high[1]:
            return False
        return all(
            x1 + PAD <= rect[0] or rect[2] + PAD <= x0 or z1 + PAD <= rect[1] or rect[3] + PAD <= z0
            for rect in self.taken.values()
        )


class House:
    """A scene with its furniture and objects, and a player in it.

    Args:
        scene: what `load` is told: paths of `stage` and `physics`; `size` of pictures, `pictures` that are wanted;
            `start` of the player; `pieces` and `objects`, each with `file`, `position`, `rotation` (x, y, z, w), and
            objects with the piece that each `lies` on.

    Raises:
        RuntimeError: habitat-sim refuses a part of it.
    """

    def __init__(self, scene: dict[str, Any]) -> None:
        import habitat_sim
        import magnum

        self._sim_package, self._magnum, self._scene = habitat_sim, magnum, scene
        self.simulator: Any = habitat_sim.Simulator(self._configuration())
        self._agent: Any = self.simulator.get_agent(0)
        self._bodies: dict[int, Any] = {}
        self._instance: dict[int, int] = {}  # by the simulator's number of an object
        self._boxes: dict[int, Box] = {}
        for n, piece in enumerate(scene["pieces"], 1):
            self._add(n, piece)
        self._build_floor()
        for n, thing in enumerate(scene["objects"], OBJECT):
            self._add(n, thing)
        self._known = np.zeros(256, np.uint8)
        self._known[list(self._bodies)] = list(self._bodies)
        self._shelves: dict[int, Shelf] = {}
        self._lies: dict[int, int] = {}

    def _configuration(self) -> Any:
        package, scene = self._sim_package, self._scene
        backend = package.SimulatorConfiguration()
        backend.scene_id = scene["stage"]
        backend.gpu_device_id = 0
        backend.allow_sliding = True
        backend.enable_physics = True
        backend.physics_config_file = scene["physics"]
        kinds = package.SensorType
        sensors = []
        for name, kind in (("ids", kinds.SEMANTIC), ("rgb", kinds.COLOR), ("depth", kinds.DEPTH)):
            if name in scene["pictures"]:
                sensor = package.CameraSensorSpec()
                sensor.uuid, sensor.sensor_type, sensor.sensor_subtype = name, kind, package.SensorSubType.PINHOLE
                sensor.resolution = [scene["size"], scene["size"]]
                sensor.position = [0.0, EYE, 0.0]
                sensor.hfov = 90
                sensors.append(sensor)
        agent = package.agent.AgentConfiguration()
        agent.height, agent.radius = HEIGHT, RADIUS
        agent.sensor_specifications = sensors
        agent.action_space = {
            action: package.agent.ActionSpec(action, package.agent.ActuationSpec(*amounts))
            for action, amounts in zip(  # noqa: B905 (3.9 does not know `strict`)
                ACTIONS, ((STRIDE,), (TURN,), (TURN,), (LOOK, MOST_LOOK), (LOOK, MOST_LOOK))
            )
        }
        return package.Configuration(backend, [agent])

    def _add(self, n: int, thing: dict[str, Any]) -> None:
        templates = self.simulator.get_object_template_manager()
        found = templates.load_configs(thing["file"])
        if not found:
            raise RuntimeError(f"habitat-sim finds no object in {thing['file']}")
        handle = templates.get_template_handle_by_id(found[0])
        body = self.simulator.get_rigid_object_manager().add_object_by_template_handle(handle)
        if body is None:
            raise RuntimeError(f"habitat-sim cannot add {thing['file']}")
        self._bodies[n], self._instance[body.object_id] = body, n
        self._place_at_start(n, thing)
        body.motion_type = self._sim_package.physics.MotionType.KINEMATIC
        body.semantic_id = n

    def _place_at_start(self, n: int, thing: dict[str, Any]) -> None:
        *axis, scalar = thing["rotation"]
        self._bodies[n].translation = self._magnum.Vector3(*thing["position"])
        self._bodies[n].rotation = self._magnum.Quaternion(self._magnum.Vector3(*axis), scalar)
        self._boxes[n] = self._box(self._bodies[n])

    def _box(self, body: Any) -> Box:
        bounds, world, vector = body.root_scene_node.cumulative_bb, body.transformation, self._magnum.Vector3
        ends = (bounds.min, bounds.max)
        corners = [
            world.transform_point(vector(ends[i][0], ends[j][1], ends[k][2]))
            for i in (0, 1)
            for j in (0, 1)
            for k in (0, 1)
        ]
        points = np.array([[point[0], point[1], point[2]] for point in [*corners, body.translation]], np.float64)
        return Box(points[:8].min(0), points[:8].max(0), points)

    def _build_floor(self) -> None:
        """Where a player can walk: not through the box around any piece."""
        templates = self.simulator.get_object_template_manager()
        bodies = self.simulator.get_rigid_object_manager()
        wire = templates.get_template_handles("cubeWireframe")[0]  # from -1 to 1
        walls = []
        for n, box in self._boxes.items():
            template = templates.get_template_by_handle(wire)
            template.scale = self._magnum.Vector3(*((box.high - box.low) / 2).tolist())
            templates.register_template(template, f"around_{n}")
            walls.append(bodies.add_object_by_template_handle(f"around_{n}"))
            walls[-1].translation = self._magnum.Vector3(*((box.high + box.low) / 2).tolist())
            walls[-1].motion_type = self._sim_package.physics.MotionType.STATIC
        settings = self._sim_package.NavMeshSettings()
        settings.set_defaults()
        settings.agent_radius, settings.agent_height, settings.agent_max_climb = RADIUS, HEIGHT, CLIMB
        settings.include_static_objects = True
        built = self.simulator.recompute_navmesh(self.simulator.pathfinder, settings)
        for wall in walls:
            bodies.remove_object_by_id(wall.object_id)
        if not built:
            raise RuntimeError(f"habitat-sim finds no floor to walk on in {self._scene['stage']}")

    # ---- what is asked ----------------------------------------------------------------------------------------------

    def reset(self, request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """All is as at first. Objects keep their numbers in the simulator: nothing is added twice."""
        self._shelves = {n: Shelf(self._boxes[n]) for n in range(1, len(self._scene["pieces"]) + 1)}
        for n, thing in enumerate(self._scene["objects"], OBJECT):
            self._place_at_start(n, thing)
            self._lay(n, thing["lies"])
        state = self._sim_package.AgentState()
        state.position = np.array(self._scene["start"]["position"], np.float32)
        state.rotation = self._sim_package.utils.common.quat_from_coeffs(self._scene["start"]["rotation"])
        self._agent.set_state(state, True)  # with its cameras: level
        return self.sense(request)

    def sense(self, request: dict[str, Any], **found: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Where the player is, what it sees, and what else was found."""
        state, seen = self._agent.get_state(), self.simulator.get_sensor_observations()
        coefficients = self._sim_package.utils.common.quat_to_coeffs(state.sensor_states["ids"].rotation)
        found["position"] = [float(value) for value in state.position]
        found["rotation"] = [float(value) for value in coefficients]
        ids = np.asarray(seen["ids"])
        pictures: dict[str, Any] = {"ids": self._known[np.where((ids >= 0) & (ids < 256), ids, 0).astype(np.uint8)]}
        if "rgb" in seen:
            pictures["rgb"] = np.asarray(seen["rgb"])[..., :3]
        if "depth" in seen:
            clipped = np.clip(np.asarray(seen["depth"], np.float32), NEAREST, FARTHEST)
            pictures["depth"] = (clipped - np.float32(NEAREST)) / np.float32(FARTHEST - NEAREST)
        return found, pictures

    def act(self, request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Step, turn or look."""
        return self.sense(request, collided=bool(self._agent.act(ACTIONS[request["action"]])))

    def aim(self, request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the ray through the middle of the picture meets first, and how far each instance is."""
        middle = self._scene["size"] // 2
        camera = self._agent.scene_node.node_sensor_suite.get("ids").render_camera
        ray = camera.unproject(self._magnum.Vector2i(middle, middle))
        result, instance = self.simulator.cast_ray(ray, max_distance=request["reach"]), 0
        for hit in sorted(result.hits, key=lambda hit: hit.ray_distance) if result.has_hits() else ():
            instance = self._instance.get(hit.object_id, 0)
            if instance or not request["see_through"]:  # 0: a wall
                break
        position = self._agent.get_state().position
        metres = np.full(256, np.inf)
        for n, box in self._boxes.items():
            metres[n] = np.hypot(box.points[:, 0] - position[0], box.points[:, 2] - position[2]).min()
        return {"instance": instance}, {"metres": metres}

    def lift(self, request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """An object leaves its piece."""
        n, position = request["object"], self._agent.get_state().position
        del self._shelves[self._lies.pop(n)].taken[n]
        self._move(n, [float(position[0]), float(position[1]) + AWAY, float(position[2])])
        return self.sense(request)

    def drop(self, request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """An object comes to lie on a piece, if there is room for it."""
        n, shelf, box = request["object"], self._shelves[request["piece"]], self._boxes[request["object"]]
        place = shelf.room(float(box.high[0] - box.low[0]), float(box.high[2] - box.low[2]))
        if place is None:
            return self.sense(request, room=False)
        x, z, turned = place
        if turned:
            quarter = self._magnum.Quaternion(self._magnum.Vector3(0.0, math.sqrt(0.5), 0.0), math.sqrt(0.5))
            self._bodies[n].rotation = quarter * self._bodies[n].rotation
            box = self._box(self._bodies[n])
        low, high, origin = box.low, box.high, box.points[8]
        offset = origin - [(low[0] + high[0]) / 2, low[1], (low[2] + high[2]) / 2]
        self._move(n, (np.array([x, shelf.top, z]) + offset).tolist())
        self._lay(n, request["piece"])
        return self.sense(request, room=True)

    def _move(self, n: int, position: list[float]) -> None:
        self._bodies[n].translation = self._magnum.Vector3(*position)
        self._boxes[n] = self._box(self._bodies[n])

    def _lay(self, n: int, piece: int) -> None:
        low, high = self._boxes[n].low, self._boxes[n].high
        self._lies[n] = piece
        self._shelves[piece].taken[n] = float(low[0]), float(low[2]), float(high[0]), float(high[2])

    def instances(self) -> list[int]:
        """What is there."""
        return sorted(self._bodies)


def read(stream: BinaryIO) -> dict[str, Any] | None:
    """The next request; None if there is none any more."""
    length = stream.read(LENGTH.size)
    if len(length) < LENGTH.size:
        return None
    request: dict[str, Any] = json.loads(stream.read(LENGTH.unpack(length)[0]))
    return request


def main() -> None:
    """Answer until stdin ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the simulator prints must not come between the answers
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]  # nothing of Cairn is imported

    def answer(header: dict[str, Any], arrays: dict[str, Any] | None = None) -> None:
        answers.write(pack(header, arrays))
        answers.flush()

    try:
        import habitat_sim
        import magnum  # noqa: F401
    except ImportError as reason:
        answer({"missing": str(reason)})
        return
    answer({"version": habitat_sim.__version__, "bullet": bool(habitat_sim.built_with_bullet)})
    house: House | None = None
    while True:
        request = read(requests)
        if request is None:
            return
        do = request["do"]
        try:
            if do == "load":
                house = House(request)
                answer({"instances": house.instances()})
            elif do == "close":
                if house is not None:
                    house.simulator.close()
                answer({})
            else:
                answer(*getattr(house, do)(request))
        except Exception as reason:
            traceback.print_exc()
            answer({"error": f"{type(reason).__name__}: {reason}"})


if __name__ == "__main__":
    main()
