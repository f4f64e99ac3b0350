"""The house robot, compiled: wheels, bumpers, lasers and small policies.

floor       what the loops must know of a map, as tables
robot       one step of one robot: move, touch, look        (compiled)
policy      small networks, sixteen at a time                (compiled)
loops       many robots, many steps                          (compiled)
"""
