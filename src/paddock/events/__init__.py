from paddock.events.log import Event, EventLog

__all__ = ["Event", "EventLog"]
