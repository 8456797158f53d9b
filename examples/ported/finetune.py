"""A net that knows digits 0 to 4 is given a new head, and learns all ten with its body frozen."""
# import torch
# import torch.nn as nn
# import torch.nn.functional as F
# import torch.optim as optim
# from torch.optim.lr_scheduler import StepLR
import os
import sys
import tempfile
import time

import ntgrad as torch
import ntgrad.nn as nn
import ntgrad.nn.functional as F
import ntgrad.nn.optim as optim
from ntgrad.nn.datasets import mnist
from ntgrad.nn.optim.lr_scheduler import StepLR


class Net(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )
        self.dropout = nn.Dropout(0.25)
        self.fc = nn.Linear(32 * 3 * 3, num_classes)

    def forward(self, x):
        x = self.features(x)
        x = torch.flatten(x, 1)
        x = self.dropout(x)
        return self.fc(x)


def batches(images, labels, batch_size, shuffle=True):
    order = torch.randperm(len(images)) if shuffle else torch.arange(len(images))
    for i in range(0, len(images), batch_size):
        index = order[i:i + batch_size]
        yield images[index], labels[index]


def train(model, images, labels, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(batches(images, labels, 100)):
        optimizer.zero_grad()
        output = model(data)
        loss = F.cross_entropy(output, target)
        loss.backward()
        optimizer.step()
        if batch_idx % 10 == 0:
            print(f'Train Epoch: {epoch} [{batch_idx * len(data)}/{len(images)}]\tLoss: {loss.item():.6f}')


def test(model, images, labels):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in batches(images, labels, 250, shuffle=False):
            output = model(data)
            test_loss += F.cross_entropy(output, target, reduction='sum').item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    print(f'Test set: Average loss: {test_loss / len(images):.4f}, Accuracy: {correct}/{len(images)}')
    return correct / len(images)


def load_digits():
    train_images, train_labels, test_images, test_labels = [torch.from_numpy(a) for a in mnist()]
    train_images, test_images = [(x.float() / 255 - 0.1307) / 0.3081 for x in (train_images, test_images)]
    return train_images, train_labels.long(), test_images, test_labels.long()


def pretrain(path, epochs):
    """What somebody else has done: a checkpoint of a net that knows five digits."""
    x, y, x_test, y_test = load_digits()
    model = Net(num_classes=5)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for epoch in range(1, epochs + 1):
        train(model, x[y < 5], y[y < 5], optimizer, epoch)
    test(model, x_test[y_test < 5], y_test[y_test < 5])
    torch.save({'epoch': epochs, 'model_state_dict': model.state_dict(), 'optimizer_state_dict': optimizer.state_dict()}, path)


def main(path=None, epochs=3):
    torch.manual_seed(0)
    start = time.time()
    folder = tempfile.mkdtemp()
    if path is None:
        path = os.path.join(folder, 'five.pt')
        pretrain(path, 2)

    checkpoint = torch.load(path, map_location='cpu')
    state_dict = {k: v for k, v in checkpoint['model_state_dict'].items() if not k.startswith('fc.')}
    model = Net()
    missing, unexpected = model.load_state_dict(state_dict, strict=False)
    print('missing:', missing, 'unexpected:', unexpected)
    before = {k: v.clone() for k, v in model.state_dict().items()}

    for param in model.parameters():
        param.requires_grad = False
    num_ftrs = model.fc.in_features
    model.fc = nn.Linear(num_ftrs, 10)

    optimizer = optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-2)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
    x, y, x_test, y_test = load_digits()
    for epoch in range(1, epochs + 1):
        train(model, x, y, optimizer, epoch)
        accuracy = test(model, x_test, y_test)
        scheduler.step()

    after = model.state_dict()
    weights = [k for k in before if k.startswith('features') and k.endswith('weight')]
    assert all(torch.equal(before[k], after[k]) for k in weights), 'the body is frozen'
    torch.save(model.state_dict(), os.path.join(folder, 'ten.pt'))
    again = Net()
    again.load_state_dict(torch.load(os.path.join(folder, 'ten.pt')))
    assert test(again, x_test, y_test) == accuracy
    print(f'{time.time() - start:.1f} s')
    return accuracy


if __name__ == '__main__':
    sys.exit(main() < 0.93)
