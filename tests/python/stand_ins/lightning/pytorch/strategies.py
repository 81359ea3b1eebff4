"""What SwarmStrategy uses of Lightning 2.2, which Debian does not have, and the calls that its Trainer
makes, in their order (lightning/pytorch: strategies/strategy.py, core/optimizer.py, loops/optimization/automatic.py,
loops/training_epoch_loop.py)."""

import torch


class CPUAccelerator:
    pass


class LightningOptimizer:
    def __init__(self, optimizer, strategy):
        self._optimizer, self._strategy = optimizer, strategy
        self.__class__ = type("Lightning" + type(optimizer).__name__, (LightningOptimizer, type(optimizer)), {})

    def step(self, closure=None, **named):
        return self._strategy.optimizer_step(self._optimizer, closure or (lambda: None), **named)

    def __getattr__(self, name):
        return getattr(self._optimizer, name)


class SingleDeviceStrategy:
    def __init__(self, device="cpu"):
        self.accelerator = CPUAccelerator()
        self.lightning_module = None
        self.lr_scheduler_configs = []
        self.torn_down = False

    @property
    def optimizers(self):
        return self._optimizers

    @optimizers.setter
    def optimizers(self, optimizers):
        self._optimizers = optimizers
        self.lightning_optimizers = [LightningOptimizer(optimizer, self) for optimizer in optimizers]

    def optimizer_step(self, optimizer, closure, model=None, **named):
        return optimizer.step(closure=closure, **named)  # Precision.optimizer_step

    def on_exception(self, exception):
        pass

    def teardown(self):
        self.torn_down = True


class SchedulerConfig:
    def __init__(self, scheduler):
        self.scheduler = scheduler


class Trainer:
    """Automatic optimization, with `accumulate` batches for each step."""

    def __init__(self, strategy, accumulate=1, **_):
        self.strategy, self.accumulate = strategy, accumulate
        self.should_stop = False

    def fit(self, module, batches):
        strategy = self.strategy
        module.trainer = self
        strategy.lightning_module = module
        strategy.optimizers, schedulers = module.configure_optimizers()
        strategy.lr_scheduler_configs = [SchedulerConfig(scheduler) for scheduler in schedulers]
        assert strategy.root_device == torch.device("cpu")
        try:
            for i, batch in enumerate(batches):
                if self.should_stop:
                    break
                strategy.on_train_batch_start(batch, i)
                zero = i % self.accumulate == 0
                steps = i % self.accumulate == self.accumulate - 1

                def closure():
                    loss = module.training_step(batch, i) / self.accumulate
                    if zero:
                        strategy.lightning_optimizers[0].zero_grad()
                    loss.backward()
                    return loss.detach()

                if steps:
                    with torch.no_grad():
                        strategy.lightning_optimizers[0].step(closure=torch.enable_grad()(closure))
                    for config in strategy.lr_scheduler_configs:
                        config.scheduler.step()
                else:
                    closure()
        except BaseException as exception:
            strategy.on_exception(exception)
            raise
        finally:
            strategy.teardown()
