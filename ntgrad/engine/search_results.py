"""What searches have found (Opts by ``BEAM``, block sizes by the tuner of tile kernels), as the disk cache keeps it, and as JSON
that another machine with such a device takes."""
from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import Any, Mapping, NamedTuple

from ntgrad.backends import cache
from ntgrad.backends.base import Device
from ntgrad.codegen.index.records import PLAIN, STR, Between, Form, RecordError, Sequence, Table, TupleForm, packed
from ntgrad.codegen.ir import StateError
from ntgrad.codegen.ir.errors import shown
from ntgrad.codegen.opts import read_opt

BEAM, TUNER = "beam", "tile-tune"   # the tables of the disk cache
LISTS = Sequence(Sequence(PLAIN))   # of Opts, one a part of a kernel
CHOICE = Table(STR, Between(1))     # values of symbols, and of options of the compiler
_CHOICES: Mapping[str, Form[Any]] = {BEAM: LISTS, TUNER: CHOICE}
_FORMAT = 1   # of the file: another one is not read
_KEY = re.compile("[0-9a-f]{64}")


class About(NamedTuple):
  """What a choice was made for: the device with its driver, the kernel's name, and the code generators' version (``""`` where a
  choice holds for all)."""
  device: str
  kernel: str
  code: str = ""


def device_text(device: Device) -> str:
  """A device with its driver, and all that Opts are chosen by."""
  target = device.renderer.target
  return f"{device.identity} | {target.cores} cores | {sha256(str(target).encode()).hexdigest()[:8]}"


def entry_form(choice: Form[Any]) -> Form[Any]:
  """How a choice lies in the disk cache, with what it was made for."""
  return TupleForm(TupleForm(STR, STR, STR), choice)


def found_choice(table: str, key: str, choice: Form[Any]) -> Any:
  """The choice that is kept under a key, or None."""
  kept = cache.get(table, key, entry_form(choice))
  return None if kept is None else kept[1]


def keep_choice(table: str, key: str, choice: Form[Any], value: Any, about: About) -> bool:
  """Keep a choice for other processes; whether it is kept."""
  return cache.put(table, key, entry_form(choice), (tuple(about), value))


def export_results(device: Device) -> tuple[dict[str, Any], int]:
  """All choices for a device that this ntgrad reads, as JSON has them, and how many others there are."""
  results, others, here = [], 0, device_text(device)
  for *_, path in sorted(cache.entries(cache.folder()), key=lambda e: e[2]):
    table, key = cache.entry_of(path)
    if table not in _CHOICES or (kept := cache.get(table, key, entry_form(_CHOICES[table]))) is None: continue
    about = About(*kept[0])
    if about.device != here or about.code not in ("", cache.version()): others += 1
    else: results.append({"table": table, "key": key, "kernel": about.kernel, "choice": kept[1]})
  return {"format": _FORMAT, "device": here, "code": cache.version(), "results": results}, others


def import_results(text: str | bytes, device: Device) -> tuple[int, int]:
  """Keep the choices of a file that ``export_results`` made, all or none: how many, and how many others, which were made by other
  versions of the code generators. Raises StateError for a file of another device, or one that is damaged."""
  try:
    file = json.loads(text)
    if file["format"] != _FORMAT: raise StateError(f"it has format {shown(file['format'])}, and this version reads {_FORMAT}")
    if (theirs := STR.read(file["device"], None)) != (here := device_text(device)):   # type: ignore[arg-type]
      raise StateError(f"its results are for {theirs!r}, and {device.name} here is {here!r}; what was measured serves the same "
                       "device with the same driver only")
    same, entries = file["code"] == cache.version(), []
    for r in file["results"]:
      table, key, about = r["table"], r["key"], About(here, r["kernel"], cache.version() if r["table"] == BEAM else "")
      if not _KEY.fullmatch(key): raise RecordError(f"{shown(key)} is no key")
      value = dict(r["choice"].items()) if table == TUNER else tuple(map(tuple, r["choice"]))
      if table == BEAM: list(map(read_opt, [o for opts in value for o in opts]))
      packed(entry_form(_CHOICES[table]), (tuple(about), value))
      if same or table == TUNER: entries.append((table, key, _CHOICES[table], value, about))
    count = len(file["results"])
  except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as e:
    if isinstance(e, StateError): raise
    raise StateError(f"it is no file of search results, or damaged ({type(e).__name__}: {shown(str(e))})") from None
  for entry in entries:
    if not keep_choice(*entry): raise StateError(f"nothing is kept in {cache.folder()}; CACHE=0, or the disk cannot be written")
  return len(entries), count - len(entries)
