"""The Lambdas `Replay` and `Inspect`: wiring only."""

import gc

from replay.event import ACTIONS, READING
from replay.function import COLLECT_AFTER, ReplayFunction

gc.set_threshold(COLLECT_AFTER)

replay = ReplayFunction(ACTIONS)
inspect = ReplayFunction(READING)
