"""The emulator's state on disk: what was acknowledged is there after SIGKILL, power loss and restart.

store = Store.open(data_dir, compile_rule=compile_rule)
namespace = Namespace(queues, topics, clock=clock, new_lock_token=uuid4, journal=store)
namespace.restore(store.read())
...
store.commit()  # before anything is acknowledged
"""

from spark_sb_mgmt.emulator.storage.database import StorageError
from spark_sb_mgmt.emulator.storage.store import Store

__all__ = ["StorageError", "Store"]
