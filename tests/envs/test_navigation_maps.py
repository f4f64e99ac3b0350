"""Maps from JSON and from pictures, and what is refused with one sentence."""

import copy
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from envs.navigation import HOUSE, Map, Thing, from_picture, load

WALLS = "walls_px_inclusive_x0_y0_x1_y1"
HOUSE_JSON = json.loads(HOUSE.read_text())


def test_the_default_house():
    house = load()
    assert house.walls.shape == (200, 200)
    assert house.walls.sum() == pytest.approx(10_492, abs=30)  # the published bitmap has a few rounded corners
    assert house.interior == (10, 10, 190, 190)
    assert house.scale == pytest.approx(1 / 3)
    assert house.start == pytest.approx((60, 450, np.pi / 4))
    assert house.goal == (60, 60)
    assert len(house.objects) == 12
    assert ("bed", 164, 174) in house.objects
    assert house.tiles == (("red", "green", "blue"), ("yellow", "orange", "purple"), ("pink", "gray", "white"))
    assert load(house) is house
    with pytest.raises(ValueError):
        house.walls[0, 0] = False


@given(arrays(np.bool_, st.tuples(st.integers(4, 20), st.integers(4, 20))))
def test_a_map_is_its_json(inner):
    walls = np.pad(inner, 1, constant_values=True)
    walls[1, 1] = False
    things = (Thing("old chair", 1.0, 2.5),)
    others = {"old chair": ("armchair", "old seat")}
    house = Map(3.0 * walls.shape[1], walls, (1.0, 2.0, 0.5), (3.0, 4.0), things, (("red", "blue"),), others)
    again = load(json.loads(json.dumps(house.as_json())))
    assert (again.walls == walls).all()
    assert again.start == pytest.approx(house.start)
    assert (again.world_size, again.goal, again.objects, again.tiles, again.synonyms) == (
        house.world_size,
        house.goal,
        house.objects,
        house.tiles,
        others,
    )


def changed(**values):
    tree = copy.deepcopy(HOUSE_JSON)
    for key, value in values.items():
        if value is None:
            del tree[key]
        else:
            tree[key] = value
    return tree


@pytest.mark.parametrize(
    ("tree", "sentence"),
    [
        (changed(goal=None), "the map lacks goal"),
        (changed(world_size=None, start_pose_deg=None), "the map lacks world_size, start_pose_deg"),
        (changed(**{WALLS: HOUSE_JSON[WALLS][1:]}), r"border of the map is open at pixel \(10, 0\)"),
        (
            changed(**{WALLS: [*HOUSE_JSON[WALLS], [5, 5, 200, 6]]}),
            r"wall 19, \[5, 5, 200, 6\], is no rectangle within",
        ),
        (changed(**{WALLS: [[-1, 0, 5, 5]]}), r"wall 0, .* is no rectangle within"),
        (changed(**{WALLS: [[9, 9, 5, 5]]}), r"wall 0, .* is no rectangle within"),
        (changed(**{WALLS: [[0, 0, 199, 199]]}), "the map is all wall"),
        (changed(**{WALLS: [[0, 0, 5]]}), r"wall 0 of a map is 4 numbers: got \[0, 0, 5\]"),
        (changed(**{WALLS: [[0, 0, 5, 5.5]]}), "wall 0 of a map is 4 whole numbers"),
        (changed(**{WALLS: "none"}), f"{WALLS} of a map is a list"),
        (changed(world_size="600"), "world_size of a map is 1 number: got"),
        (changed(world_size=0), "world_size and grid_size are positive"),
        (changed(world_size=20_000), "a pixel is 0.2 to 14 world units wide"),
        (changed(grid_size=[200]), "grid_size of a map is 2 numbers"),
        (changed(grid_size=[200, 1e9]), "at most 2048 pixels"),
        (changed(start_pose_deg=[60, 450]), "start_pose_deg of a map is 3 numbers"),
        (changed(goal=[60, float("nan")]), "goal of a map is 2 numbers"),
        (changed(goal=[60, True]), "goal of a map is 2 numbers"),
        (changed(objects=[{"name": "bed", "x": 1}]), "an object of a map has a name, x and y"),
        (changed(objects=[{"name": "bed", "x": 1, "y": 200}]), r"the object 'bed' at \(1, 200\) is outside the grid"),
        (changed(objects=[{"name": "<b>", "x": 1, "y": 2}]), "names of objects and colours are letters"),
        (changed(tiles=[["red"], ["blue", "green"]]), "tiles are rows of equally many colour names"),
        (changed(tiles=[[1, 2]]), "tiles of a map are rows of colour names"),
        (changed(tile=[["red"]]), "did you mean 'tiles'"),
        (changed(synonym={"bed": ["cot"]}), "did you mean 'synonyms'"),
        (changed(synonyms={"bed": "cot"}), "synonyms of a map are lists of names by name"),
        (changed(synonyms={"bed": ["sofa"]}), "the synonym 'sofa' of 'bed' names something already"),
        (changed(synonyms={"bed": ["cot"], "sofa": ["Cot"]}), "the synonym 'Cot' of 'sofa' names something already"),
        (changed(synonyms={"bed": ["<b>"]}), "synonyms are letters, digits and spaces"),
    ],
)
def test_a_bad_map_is_one_sentence(tree, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        load(tree)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_map_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read the map .*nowhere\.json"):
        load(tmp_path / "nowhere.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ValueError, match="cannot read the map"):
        load(str(tmp_path / "bad.json"))
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ValueError, match="is an object"):
        load(tmp_path / "list.json")


def test_further_keys_are_nobodys_business():
    assert (load(changed(author="me")).walls == load().walls).all()


# ---- pictures --------------------------------------------------------------------------------------------------------

PLACE = {"start_pose_deg": (30, 30, 90), "goal": (12, 12)}


def plan(width=21, height=17):
    """Odd sizes, so that a row does not fill its bytes."""
    walls = np.random.default_rng(0).random((height, width)) < 0.3
    walls[[0, -1]] = walls[:, [0, -1]] = True
    return walls


def test_bitmaps(tmp_path):
    walls = plan()
    height, width = walls.shape
    packed = tmp_path / "packed.pbm"
    packed.write_bytes(b"P4\n# a comment\n%d %d\n" % (width, height) + np.packbits(walls, axis=1).tobytes())
    plain = tmp_path / "plain.pbm"
    rows = "\n".join("".join(map(str, row)) for row in walls.astype(int))
    plain.write_text(f"P1 # made by hand\n{width}\n{height}\n# first\n{rows}\n")
    for path in (packed, plain):
        house = from_picture(path, 63, **PLACE)
        assert (house.walls == walls).all()
        assert house.start == (30, 30, np.pi / 2)
        assert house.scale == pytest.approx(1 / 3)
    spaced = tmp_path / "spaced.pbm"
    spaced.write_text(f"P1\n{width} {height}\n" + " ".join(rows.replace("\n", "")))
    assert (from_picture(spaced, 63, **PLACE).walls == walls).all()
    Image.fromarray(~walls).save(tmp_path / "pillow.pbm")
    assert (from_picture(tmp_path / "pillow.pbm", 63, **PLACE).walls == walls).all()


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "RGBA", "P"])
def test_pictures_of_other_kinds(tmp_path, mode):
    walls = plan()
    picture = Image.fromarray(np.where(walls, 0, 255 if mode == "1" else 140).astype(np.uint8)).convert(mode)
    picture.save(tmp_path / "plan.png")
    house = from_picture(tmp_path / "plan.png", 63, **PLACE, objects=[("bed", 3, 3)], tiles=[["red"]])
    assert (house.walls == walls).all()
    assert house.objects == (Thing("bed", 3, 3),)
    assert (load(house.as_json()).walls == walls).all()


def test_transparent_is_free(tmp_path):
    walls = plan()
    rgba = np.zeros((*walls.shape, 4), np.uint8)
    rgba[..., 3] = np.where(walls, 255, 0)
    Image.fromarray(rgba).save(tmp_path / "plan.png")
    assert (from_picture(tmp_path / "plan.png", 63, **PLACE).walls == walls).all()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"P4\n21", "it has no width and height"),
        (b"P4\n21 17\n\0\0", "does not hold 21 x 17 bits"),
        (b"P1\n2 2\n1 0 7 1", "does not hold 2 x 2 bits"),
        (b"no picture", "cannot read the picture"),
    ],
)
def test_a_bad_picture_is_one_sentence(tmp_path, content, sentence):
    (tmp_path / "plan.pbm").write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        from_picture(tmp_path / "plan.pbm", 63, **PLACE)
    with pytest.raises(ValueError, match="cannot read the picture"):
        from_picture(tmp_path / "nowhere.png", 63, **PLACE)
