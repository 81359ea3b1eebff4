"""A script that knows nothing of waggle, with a closure and a scheduler: for test_launcher.py."""

import sys

import torch

torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)
criterion = torch.nn.MSELoss()
for i in range(1000):
    x, y = torch.randn(8, 6), torch.randn(8, 2)

    def closure():
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        return loss

    assert optimizer.step(closure) > 0
    scheduler.step()
