// A training loop of LibTorch alone. swarm.cpp is the same loop as a peer of a run.

#include "examples/bytes.hpp"

int main(int argc, char** argv) try {
  auto given = example::read(argc, argv);
  example::next_byte model;
  example::synthetic_text text{given.seed};
  auto options = torch::optim::AdamWOptions(3e-3).weight_decay(0);
  torch::optim::AdamW optimizer{model->parameters(), options};
  for (std::int64_t step = 0; step < given.steps; ++step) {
    optimizer.zero_grad();
    auto loss = model->loss(text.next(given.batch));
    loss.backward();
    optimizer.step();
    if (step % 100 == 0)
      std::printf("step %lld: loss %.3f\n", static_cast<long long>(step), loss.item<double>());
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
