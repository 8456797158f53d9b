"""tests/support/ledger.py: what it writes is the same each time, and a comparison shows what differs."""
from __future__ import annotations

from pathlib import Path

import pytest

from ntgrad import Tensor, config
from support import ledger, ledger_cases, ledger_kernels, ledger_names


def test_written_twice_it_is_the_same(tmp_path: Path) -> None:
  a, b = tmp_path / "a", tmp_path / "b"
  for folder in (a, b):
    assert ledger.write_file(folder, "names") > 3000
    for machine in ledger_cases.NAMED: assert ledger.write_file(folder, f"kernels/ops-{machine}", "softmax") > 4
    assert ledger.write_file(folder, "kernels/tile-sm_90", "matmul") == 2
    assert ledger.write_file(folder, "passes/avx512", "layer norm") == 2
    assert ledger.write_file(folder, "golden") > 100
  text, alike = ledger.compare(a, b)
  assert alike and "differ" not in text and "names.txt: 4" in text
  found = ledger.read(a / "kernels" / "ops-avx512.txt")
  kernel = next(v for k, v in found.items() if not k.endswith(" all"))
  assert "opts     a" in kernel and "\nlaunch   grid " in kernel and "__kernel" in kernel
  assert not any("refused" in k for k in found)
  assert "after place" in (a / "passes" / "avx512.txt").read_text()


def test_another_choice_is_seen(tmp_path: Path) -> None:
  row = next(c for c in ledger_cases.operations(ledger_cases.NAMED["avx2"]) if "softmax" in c.name)
  machine = ledger_cases.NAMED["avx2"]
  chosen, = {ledger_kernels.entry(m, True) for m in ledger_kernels.made(row, machine)}
  plain = ledger_cases.Case(row.name, row.run, (("noopt", 1),))
  loops, = {ledger_kernels.entry(m, True) for m in ledger_kernels.made(plain, machine)}
  for name, entry in (("a", chosen), ("b", loops)):
    (tmp_path / name).mkdir()
    (tmp_path / name / "some.txt").write_text(ledger.text_of({"one": "the\nsame", row.name: entry, f"only in {name}": "1\n2"}))
  text, alike = ledger.compare(tmp_path / "a", tmp_path / "b")
  assert not alike and "some.txt: 1 equal, 3 differ" in text and "-opts     a" in text and "+opts     none" in text
  assert "only in a: only in the first" in text and "only in b: only in the second" in text
  assert ledger.main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
  assert ledger.main(["compare", str(tmp_path / "a"), str(tmp_path / "a")]) == 0


def test_a_missing_file_and_an_empty_ledger_differ(tmp_path: Path) -> None:
  a, b = tmp_path / "a", tmp_path / "b"
  assert ledger.compare(a, b)[1] is False
  ledger.write_file(a, "golden")
  text, alike = ledger.compare(a, b)
  assert not alike and f"golden.txt: not in {b}" in text


def test_entries_are_read_as_they_were_written(tmp_path: Path) -> None:
  path = tmp_path / "some.txt"
  for entries in ({"a": "1", "b c": "2  3"}, {"a": "one\n\n  two", "b": f"x\n{ledger.MARK}y"}):
    path.write_text(ledger.text_of(entries))
    assert ledger.read(path) == {k: v.replace(f"\n{ledger.MARK}", f"\n {ledger.MARK}") for k, v in entries.items()}


@pytest.mark.parametrize(("text", "want"), [
  ("/home/me/ntgrad/tensor/reduction.py:12: sum", "<ntgrad>: sum"),
  ('File "codegen/passes/expand.py", line 3, in f', 'File "<ntgrad>", in f'),
  ("<class 'ntgrad.codegen.ir.dtype.DType'>", "<class 'DType'>"), ("import ntgrad.tile as tile", "import ntgrad.tile as tile"),
  ("model.py:31 relu", "model.py:31 relu"), ("<function f at 0x7f2a3b4c5d6e>", "<function f at 0x>")])
def test_what_a_move_changes_is_left_out(text: str, want: str) -> None: assert ledger_names.steady(text) == want


def test_names_and_signatures() -> None:
  found = ledger_names.names()
  assert found["ntgrad.Tensor.softmax"].startswith("method (self, axis") and found["ntgrad.Tensor.shape"].startswith("property")
  assert found["ntgrad.nn.Linear"].startswith("class(Module") and found["ntgrad.cat"].startswith("function (")
  assert {"ntgrad.tile", "ntgrad.linalg", "ntgrad.array_api"} <= {*ledger_names.public_modules()}
  assert not any("ntgrad.codegen" in text for text in found.values())


def test_a_command_line_that_makes_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
  with pytest.raises(SystemExit): ledger.main(["write", "nowhere", "--only", "kernel"])
  assert "no part kernel; parts: names, kernels" in capsys.readouterr().err


def test_settings_of_the_caller_change_nothing() -> None:
  case = next(ledger_cases.operations(ledger_cases.NAMED["avx512"]))
  def sources() -> list[str]: return [m.spec.source.text for m in ledger_kernels.made(case, ledger_cases.NAMED["avx512"])]
  before = sources()
  with config(noopt=1, dynamic="always"), Tensor.train(): assert sources() == before != []
