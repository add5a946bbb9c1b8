from paddock.config.paths import DataDir
from paddock.config.settings import ExecRetention, LimitDefaults, RateLimit, Settings, is_loopback
from paddock.config.sizes import format_size, parse_duration, parse_size
from paddock.config.sources import load

__all__ = [
    "DataDir",
    "ExecRetention",
    "LimitDefaults",
    "RateLimit",
    "Settings",
    "format_size",
    "is_loopback",
    "load",
    "parse_duration",
    "parse_size",
]
