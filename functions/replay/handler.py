"""The Lambdas `Replay` and `Inspect`: wiring only."""

from replay.event import ACTIONS, READING
from replay.function import ReplayFunction

replay = ReplayFunction(ACTIONS)
inspect = ReplayFunction(READING)
