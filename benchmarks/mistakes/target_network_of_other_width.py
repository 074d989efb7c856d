# crash: the target network was made with other sizes than the online network, "Error(s) in loading state_dict"
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, n_in=20, hidden=64, n_out=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, n_out)

    def forward(self, x):
        return self.head(self.body(x))


class Agent:
    def __init__(self, n_states=8, n_actions=4, hidden=128):
        self.online = Net(n_states, hidden, n_actions)
        self.target = Net(n_states, hidden, n_actions)  # mistake: self.target = Net(n_states, n_out=n_actions)
        self.optimizer = torch.optim.Adam(self.online.parameters())

    def learn(self, states, actions, rewards, gamma=0.99):
        q = self.online(states).gather(1, actions.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            goal = rewards + gamma * self.target(states).max(dim=1).values
        loss = F.smooth_l1_loss(q, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def sync(self):
        self.target.load_state_dict(self.online.state_dict())


agent = Agent()
for step in range(4):
    agent.learn(torch.randn(32, 8), torch.randint(0, 4, (32,)), torch.randn(32))
    if step % 2 == 0:
        agent.sync()
