"""Texts that the demo model can be made to copy; the tests use them too."""

INVENTORY = '''import json
from pathlib import Path


class Inventory:
    """Keeps the stock of a small shop in one JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.items: dict[str, int] = {}

    def load(self) -> None:
        if self.path.exists():
            self.items = json.loads(self.path.read_text())

    def save(self) -> None:
        self.path.write_text(json.dumps(self.items, indent=2))

    def add(self, name: str, count: int) -> None:
        if count < 0:
            raise ValueError("count must not be negative")
        self.items[name] = self.items.get(name, 0) + count

    def remove(self, name: str, count: int) -> None:
        if self.items.get(name, 0) < count:
            raise KeyError(name)
        self.items[name] -= count

    def total(self) -> int:
        return sum(self.items.values())
'''

CONFIG = """server:
  host: 127.0.0.1
  port: 8080
  workers: 4
database:
  url: postgres://localhost/shop
  pool_size: 10
  timeout_seconds: 30
logging:
  level: info
  file: /var/log/shop.log
  rotate_days: 7
features:
  search: true
  export: false
"""
