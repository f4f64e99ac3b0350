def potential(observations, actions):
    near = max(
        (
            1 - (abs(x - len(observations[-1]) // 2) + len(column) - 1 - y) / (len(observations[-1]) + len(column))
            for x, column in enumerate(observations[-1])
            for y, cell in enumerate(column)
            if cell[0] in (4, 5, 6, 7)
        ),
        default=0,
    )
    new = sum((1 for i in range(1, len(observations)) if observations[i] not in observations[:i]))
    idle = sum(
        (1 for before, now, action in zip(observations, observations[1:], actions) if action >= 0 and before == now)
    )
    return 0.4 * near + 0.4 * new / len(actions) + -0.5 * idle / len(actions)
