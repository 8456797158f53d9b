"""Deep Q learning balances a pole on a cart, with a replay memory and a target network."""
# import torch
# import torch.nn as nn
# import torch.nn.functional as F
# import torch.optim as optim
import math
import random
import sys
import time
from collections import deque, namedtuple

import numpy as np

import ntgrad as torch
import ntgrad.nn as nn
import ntgrad.nn.functional as F
import ntgrad.nn.optim as optim

Transition = namedtuple('Transition', ('state', 'action', 'next_state', 'reward', 'done'))


class CartPole:
    """The cart pole of Barto, Sutton and Anderson, as gym has it."""

    def __init__(self, rng, max_steps=200):
        self.rng, self.max_steps = rng, max_steps

    def reset(self):
        self.state, self.t = self.rng.uniform(-0.05, 0.05, 4), 0
        return self.state.astype(np.float32)

    def step(self, action):
        x, x_dot, theta, theta_dot = self.state
        force = 10.0 if action == 1 else -10.0
        temp = (force + 0.05 * theta_dot ** 2 * math.sin(theta)) / 1.1
        theta_acc = (9.8 * math.sin(theta) - math.cos(theta) * temp) / (0.5 * (4 / 3 - 0.1 * math.cos(theta) ** 2 / 1.1))
        x_acc = temp - 0.05 * theta_acc * math.cos(theta) / 1.1
        self.state = self.state + 0.02 * np.array([x_dot, x_acc, theta_dot, theta_acc])
        self.t += 1
        terminated = bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * math.pi / 180)
        return self.state.astype(np.float32), 1.0, terminated, self.t >= self.max_steps


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super().__init__()
        self.layer1 = nn.Linear(n_observations, 64)
        self.layer2 = nn.Linear(64, 64)
        self.layer3 = nn.Linear(64, n_actions)

    def forward(self, x):
        x = F.relu(self.layer1(x))
        x = F.relu(self.layer2(x))
        return self.layer3(x)


BATCH_SIZE, GAMMA, TAU, LR = 64, 0.99, 0.01, 1e-3
EPS_START, EPS_END, EPS_DECAY = 0.9, 0.02, 500


def select_action(policy_net, state, eps):
    if random.random() < eps:
        return random.randrange(2)
    with torch.no_grad():
        return policy_net(torch.from_numpy(state).unsqueeze(0)).argmax(dim=1).item()


def optimize_model(policy_net, target_net, memory, optimizer):
    if len(memory) < BATCH_SIZE:
        return
    batch = Transition(*zip(*memory.sample(BATCH_SIZE)))
    states = torch.from_numpy(np.stack(batch.state))
    next_states = torch.from_numpy(np.stack(batch.next_state))
    actions = torch.tensor(batch.action).unsqueeze(1)
    rewards = torch.tensor(batch.reward)
    not_done = 1.0 - torch.tensor(batch.done, dtype=torch.float32)

    q_values = policy_net(states).gather(1, actions).squeeze(1)
    with torch.no_grad():
        next_q = target_net(next_states).amax(dim=1)
    expected = rewards + GAMMA * next_q * not_done

    loss = F.smooth_l1_loss(q_values, expected)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()

    # soft update of the target network
    with torch.no_grad():
        for target, param in zip(target_net.parameters(), policy_net.parameters()):
            target.mul_(1 - TAU).add_(TAU * param)


def main(episodes=120, goal=150.0):
    random.seed(0)
    torch.manual_seed(0)
    env = CartPole(np.random.default_rng(0))
    policy_net, target_net = DQN(4, 2), DQN(4, 2)
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = optim.Adam(policy_net.parameters(), lr=LR)
    memory = ReplayMemory(10000)
    steps, returns, start = 0, [], time.time()
    for episode in range(episodes):
        state, total, over = env.reset(), 0.0, False
        while not over:
            eps = EPS_END + (EPS_START - EPS_END) * math.exp(-steps / EPS_DECAY)
            action = select_action(policy_net, state, eps)
            next_state, reward, terminated, truncated = env.step(action)
            memory.push(state, action, next_state, reward, terminated)
            state, total, over = next_state, total + reward, terminated or truncated
            steps += 1
            optimize_model(policy_net, target_net, memory, optimizer)
        returns.append(total)
        mean = float(np.mean(returns[-10:]))
        if episode % 10 == 9:
            print(f"episode {episode + 1:4d} | {steps:5d} steps | mean return of 10: {mean:6.1f} | {time.time() - start:.1f} s")
        if len(returns) >= 10 and mean >= goal:
            print(f"solved after {episode + 1} episodes: mean return {mean:.1f}, {steps} steps, {time.time() - start:.1f} s")
            break
    return mean


if __name__ == "__main__":
    sys.exit(main() < 150)
