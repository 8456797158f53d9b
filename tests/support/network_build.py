"""From what is drawn of a network (``Spec``) to its program: blocks, a loss, gradients or an optimizer, calls with sizes."""
from __future__ import annotations

import random
import re
from typing import Any, Sequence

from ntgrad import Device, Tensor, errors

from .network_further import BLOCKS
from .network_program import PRELUDE, Growing, Program, Spec, Unfit, dry, dry_ints

KINDS = tuple(BLOCKS)
OPTIMIZERS = ("SGD({}, lr=0.01, momentum=0.9)", "SGD({}, lr=0.1, nesterov=True, momentum=0.9, weight_decay=1e-4)",
              "Adam({}, lr=1e-3)", "AdamW({}, lr=1e-3)", "RMSprop({}, lr=1e-3)",
              "Adagrad({}, lr=1e-2)", "LAMB({}, lr=1e-3)", "Muon([p for p in {} if p.ndim == 2], lr=0.01)",
              "NAdam({}, lr=1e-3)", "Lion({}, lr=1e-4)", "Adadelta({})", "Adamax({})", "RAdam({})", "LARS({}, lr=0.01)")


def block(g: Growing, kind: str) -> None:
  """One more block; drawn again where it would be too large."""
  for _ in range(8):
    kept = len(g.init), len(g.forward), len(g.inputs), dict(g.scope), g.form
    try: return BLOCKS[kind](g)
    except Unfit:
      del g.init[kept[0]:], g.forward[kept[1]:], g.inputs[kept[2]:]
      g.scope.clear()
      g.scope.update(kept[3])
      g.form = kept[4]
  if g.form: return g.put("x * 1.5")
  g.begin("rows")


_ELEMENTWISE = {
  "mse": "F.mse_loss(out, {})", "bce": "F.binary_cross_entropy_with_logits(out, ({} > 0).float())",
  "smooth": "F.smooth_l1_loss(out, {})", "l1": "F.l1_loss(out, {})", "huber": "F.huber_loss(out, {}, delta=0.5)",
  "summed": 'F.mse_loss(out, {}, reduction="sum")', "gaussian": "F.gaussian_nll_loss(out, {}, out.detach().square() + 0.1)",
  "poisson": "F.poisson_nll_loss(out.clamp(-3, 3), {}.abs())", "soft": "F.soft_margin_loss(out, {}.sign())",
  "hinge": "F.hinge_embedding_loss(out, {}.sign())", "weighted": "((out - {}) * out.detach().sigmoid()).square().mean()",
}


def loss(g: Growing) -> str:
  """A loss of the network's output ``x``; its targets are inputs of the step."""
  r = g.choice
  if g.dtype != "float32" and g.often(0.7): g.put("x.float()")
  c, shape = g.features, g.shape
  rest = ", ".join(map(str, shape[1:]))
  kind = r(["classes"] * 6 + ["kl", "cosine", "margin", "ctc", "square", "mean", "sum", *_ELEMENTWISE])
  if kind == "ctc" and g.form != "sequence": kind = "classes"
  def same(text: str) -> str: return g.input("t", text)
  if kind == "classes":
    if g.form == "rows": y = same(f"ints({c}, b)")
    elif g.form == "sequence":
      y, x = same(f"ints({c}, b, {shape[1]})"), r(["x.transpose(1, 2)", "x.flatten(0, 1)"])
      if x == "x.flatten(0, 1)": y += ".flatten()"
      return f"F.cross_entropy({x.replace('x', 'out', 1)}, {y})"
    else: y = same(f"ints({c}, b, {', '.join(map(str, shape[2:]))})")
    if g.often(0.2): return f"F.nll_loss(F.log_softmax(out, 1), {y})"
    return f"F.cross_entropy(out, {y}{r(['', '', ', label_smoothing=0.1', f', ignore_index={g.rng.randrange(c)}'])})"
  data = f"data(b, {rest})"
  if kind in _ELEMENTWISE: return _ELEMENTWISE[kind].format(same(data))
  if kind == "kl": return f"F.kl_div(F.log_softmax(out, -1), F.softmax({same(data)}, -1), reduction='batchmean')"
  if kind == "cosine": return f"(1 - F.cosine_similarity(out.flatten(1), {same(data)}.flatten(1))).mean()"
  if kind == "margin": return f"F.triplet_margin_loss(out.flatten(1), {same(data)}.flatten(1), {same(data)}.flatten(1))"
  if kind == "ctc":
    n, most = shape[1], max(1, shape[1] // 2)
    labels = same(f"ints({max(c - 1, 1)}, b, {most})")
    return (f"F.ctc_loss(F.log_softmax(out, -1).transpose(0, 1), {labels} + 1, Tensor.full((out.shape[0],), {n}, dtype='int32'), "
            f"Tensor.full((out.shape[0],), {most}, dtype='int32'), zero_infinity=True)") if c > 1 else "out.square().mean()"
  return {"square": "out.square().mean()", "mean": "out.mean()", "sum": "out.sum()"}[kind]


def grown(spec: Spec) -> Program:
  """The program of a network: a function of its ``Spec``."""
  before = Device.assigned
  Device.assigned = "NUMPY"
  try:
    with Tensor.train(): return _grown(spec)
  finally: Device.assigned = before


def _grown(spec: Spec) -> Program:
  g = Growing(spec)
  for kind in spec.kinds: block(g, kind)
  r = g.rng
  ends = r.choice(["forward", "backward", "backward", "backward", "gradient", "twice", "optimizer", "optimizer"])
  if not any(p.requires_grad for p in g.net.parameters()): ends = "forward"
  objective = "" if ends == "forward" and g.often(0.6) else loss(g)
  opt = r.choice([o for o in OPTIMIZERS if "ndim" not in o or any(p.ndim == 2 for p in g.net.parameters())])
  vary = "" if spec.sizes == "numbers" else r.choice(["b", "b", "t", "bt"]) if g.length else "b"
  program = varied(g, (ends, objective, opt), vary)
  # a length varies only where the network takes any
  return varied(g, (ends, objective, opt), "b") if "t" in vary and not runs(program) else program


def varied(g: Growing, end: tuple[str, str, str], vary: str) -> Program:
  """The program of a network whose sizes ``vary``: b, its batch, t, the length of its sequences."""
  b, t = g.batch, g.length
  calls = [(b, t)]
  if vary:
    rng = random.Random(f"sizes {g.spec.seed} {g.spec.number}")
    for n, d in zip(rng.sample((2, 3, 5, 6, 8, 12, 15), 2), rng.sample((-2, -1, 1, 3, 8), 2)):
      calls.append((n if "b" in vary else b, max(1, t + d) if "t" in vary else t))
  calls = list(dict.fromkeys(calls))
  bounds = [2 * max(ns) if x in vary and g.spec.sizes == "variable" else 0 for x, ns in zip("bt", zip(*calls))]
  return Program(body(g, *end, bounds, "t" in vary), tuple(calls), (bounds[0], bounds[1]))


def runs(program: Program) -> bool:
  """Whether all calls of a program make tensors: a layer may take but one length."""
  env: dict[str, Any] = {}
  exec(PRELUDE, env)
  env.update(data=dry, ints=dry_ints, fill=lambda net: None)
  try:
    exec(re.sub(r"\n  net\.zero_grad[\s\S]*|\nopt = .*", "", program.body), env)
    for b, t in program.calls: env["step"](b, t)
  except errors.NtgradError: return False
  return True


def body(g: Growing, ends: str, objective: str, opt: str, bounds: Sequence[int], any_length: bool) -> str:
  """The network as a class, and its step."""
  names = [line.split(" = ")[0] for line in g.inputs]
  used = [n for n in names if n == "x" or re.search(rf"\b{n}\b", "\n".join(g.forward))]
  lines = ["class Net(nn.Module):", "  def __init__(self):", "    super().__init__()", *[f"    {x}" for x in g.init],
           f"  def forward(self, {', '.join(used)}):", *[f"    {x}" for x in g.forward], "    return x", "", "",
           f"net = Net().train({ends != 'forward' or len(g.forward) % 2 == 0})"
           + (f'.to("{g.dtype}")' if g.dtype != "float32" else ""),
           "fill(net)"]
  if ends == "optimizer": lines.append(f"opt = nn.optim.{opt.format('net.parameters()')}")
  lines += ["", "", "def step(b, t):", *[f"  {_input(g, line, bounds, any_length)}" for line in g.inputs]]
  lines.append(f"  out = net({', '.join(used)})")
  if objective: lines.append(f"  loss = {objective}")
  if ends == "forward": lines.append(f"  return [{'out, loss' if objective else 'out'}]")
  elif ends == "gradient": lines += ["  params = list(net.parameters())", "  return [loss, *loss.gradient(*params)]"]
  else:
    lines += ["  net.zero_grad()", "  loss.backward()"]
    if ends == "twice": lines.append(f"  (net({', '.join(used)}) * 0.5).sum().backward()")
    if ends == "optimizer":
      if len(g.forward) % 3 == 0: lines.append("  nn.utils.clip_grad_norm_(list(net.parameters()), 1.0)")
      lines.append("  opt.step()")
    state = "parameters" if ends == "optimizer" else "buffers"
    lines.append(f"  return [loss, *[p.grad for p in net.parameters() if p.grad is not None], *net.{state}()]")
  return "\n".join(lines)


def _input(g: Growing, line: str, bounds: Sequence[int], any_length: bool) -> str:
  """The line that makes an input. What varies as a Variable is cut from a tensor of the greatest size."""
  if any_length: line = re.sub(rf"\b{g.length}\b(?! = )", "t", line)
  cut = {x: most for x, most in zip("bt", bounds) if most}
  sizes = re.sub(r", dtype=.*|\).*|.*data\(|.*ints\(\w+, ", "", line).split(", ")
  if not cut.keys() & {*sizes}: return line
  index = ", ".join([f":{n}" if n in cut else ":" for n in sizes])
  for x, most in cut.items(): line = re.sub(rf"\b{x}\b", str(most), line)
  return f"{line}[{index}]"


__all__ = ["KINDS", "PRELUDE", "grown"]
