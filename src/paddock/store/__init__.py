from paddock.store.durable import write_private
from paddock.store.store import Store
from paddock.store.writer import Op

__all__ = ["Op", "Store", "write_private"]
