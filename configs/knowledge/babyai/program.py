def potential(observations, actions):
    seen = max((1 for x, column in enumerate(observations[-1]) for y, cell in enumerate(column) if cell[0] in (4, 5, 6, 7)), default=0)
    near = max((1 / (abs(x - len(observations[-1]) // 2) + len(column) - y) for x, column in enumerate(observations[-1]) for y, cell in enumerate(column) if cell[0] in (4, 5, 6, 7)), default=0)
    idle = sum((1 for before, now, action in zip(observations, observations[1:], actions) if action >= 0 and before == now))
    ahead = observations[-1][len(observations[-1]) // 2][-2][0]
    return 0.2 * seen + 0.3 * near + -0.5 * idle / len(actions) + 0.2 * (ahead in (4, 5, 6, 7)) - 0.2 * (ahead in (2,))
