"""``cache list|size|clear|verify|export|import``: the disk cache (``backends/cache.py``). All are safe beside processes that use
it."""
from __future__ import annotations

import argparse
import json
import math
import time
from typing import Any

from ntgrad.backends import cache as disk
from ntgrad.codegen.ir import StateError, config
from ntgrad.engine import search_results
from ntgrad.engine.device import default_device, get_device

from .parser import bytes_text, command, tell


def add(commands: argparse._SubParsersAction[Any]) -> None:
  """``cache`` and its commands."""
  group = command(commands, "cache", None, "The disk cache: compiled kernels, plans, what was measured.",
                  "cache list", "cache clear --older 30", json=False)
  inner = group.add_subparsers(title="commands", metavar="command")
  command(inner, "list", listed, "How much there is of each kind, and when it was last used.", "cache list")
  command(inner, "size", lambda args: tell(args, size()), "How much there is, and where.", "cache size --json")
  clear = command(inner, "clear", cleared, "Remove entries. Processes that run go on, and compile again what they need.",
                  "cache clear", "cache clear --older 30")
  clear.add_argument("--older", type=_days, default=0.0, metavar="DAYS", help="only those that were not used for so many days")
  verify = command(inner, "verify", verified, "Read each entry, and name those that are damaged. The exit code is 1 where "
                   "there are some.", "cache verify", "cache verify --remove")
  verify.add_argument("--remove", action="store_true", help="remove those; else the first process that meets one does")
  saved = command(inner, "export", exported, "Write a JSON file of what searches have found for a device: by BEAM, and block "
                  "sizes of tile kernels.", "cache export found.json")
  taken = command(inner, "import", imported, "Keep what such a file has. One of another device, or driver, is refused.",
                  "cache import found.json")
  for parser in saved, taken:
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--device", help="its name; the default device else")


def _days(text: str) -> float:
  try: days = float(text)
  except ValueError: days = -1.0
  if not 0 <= days < math.inf: raise argparse.ArgumentTypeError(f"{text!r} is no number of days")
  return days


def size() -> dict[str, Any]:
  """The folder, how many entries it has, their bytes, and how many they may have."""
  blocks = [blocks for _, blocks, _ in disk.entries(disk.folder())]
  return {"folder": str(disk.folder()), "entries": len(blocks), "bytes": sum(blocks) * disk.BLOCK, "limit": config.cache_bytes}


def listed(args: argparse.Namespace) -> None:
  """Print a line for each kind of entry."""
  kinds: dict[str, dict[str, Any]] = {}
  for used, blocks, path in sorted(disk.entries(disk.folder())):
    kind = kinds.setdefault(disk.entry_of(path)[0], {"entries": 0, "bytes": 0})
    last = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(used * 1e-9))
    kind.update({"entries": kind["entries"] + 1, "bytes": kind["bytes"] + blocks * disk.BLOCK, "last_used": last})
  found = size()
  lines = [f"{name:20}{k['entries']:8,}{bytes_text(k['bytes']):>10}  {k['last_used']}" for name, k in sorted(kinds.items())]
  tell(args, {**found, "kinds": kinds}, "\n".join([
    f"{'kind':20}{'entries':>8}{'size':>10}  last used", *lines,
    f"{'all':20}{found['entries']:8,}{bytes_text(found['bytes']):>10}  in {found['folder']}"]))


def cleared(args: argparse.Namespace) -> None:
  """Remove entries, and say how much that was."""
  gone, nbytes = disk.clear(time.time() - args.older * 86400 if args.older else math.inf)
  tell(args, {"removed": gone, "bytes": nbytes}, f"removed from {disk.folder()}: entries {gone:,}, {bytes_text(nbytes)}")


def verified(args: argparse.Namespace) -> int:
  """Say which entries are damaged."""
  found = sorted(path for *_, path in disk.entries(disk.folder()))
  damaged = {path: why for path in found if (why := disk.damage(path))}
  if args.remove:
    for path in damaged: disk.remove(*disk.entry_of(path))
  said = f"damaged{' and removed' * args.remove}: {len(damaged):,} of {len(found):,} entries"
  tell(args, {"entries": len(found), "damaged": damaged}, "\n".join([f"{path}: {why}" for path, why in damaged.items()] + [said]))
  return bool(damaged)


def exported(args: argparse.Namespace) -> None:
  """Write a file of what searches have found."""
  found, others = search_results.export_results(get_device(args.device or default_device()))
  with open(args.file, "w") as f: json.dump(found, f, indent=1)
  count = len(found["results"])
  tell(args, {"file": args.file, "device": found["device"], "results": count, "left_out": others},
       f"{args.file}: {count:,} results for {found['device']}"
       f"{f'; {others:,} of other devices, settings or versions are left out' * bool(others)}")


def imported(args: argparse.Namespace) -> None:
  """Keep what a file has."""
  with open(args.file, "rb") as f: text = f.read()
  try: count, others = search_results.import_results(text, get_device(args.device or default_device()))
  except StateError as e: raise StateError(f"{args.file}: {e}") from None
  tell(args, {"results": count, "left_out": others},
       f"{args.file}: {count:,} results are kept in {disk.folder()}"
       f"{f'; {others:,} of BEAM are left out, which another version of ntgrad found' * bool(others)}")
