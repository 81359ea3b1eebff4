// The loop of plain.cpp as a peer of a run, together with other loops or with `waggle train`.

#include <waggle/optimizer.hpp>

#include "examples/bytes.hpp"

int main(int argc, char** argv) try {
  auto given = example::read(argc, argv);
  example::next_byte model;
  example::synthetic_text text{given.seed};
  auto options = torch::optim::AdamWOptions(3e-3).weight_decay(0);
  auto swarm = waggle::join({.run = given.run,
                             .initial_peers = given.peers,
                             .data_dir = given.data_dir,
                             .strategy = given.strategy,
                             .target_batch_size = given.target,
                             .max_epochs = given.epochs,
                             .model = "mlp",
                             .data = "synthetic",
                             .more = given.more});
  waggle::optimizer optimizer{swarm, *model,
                              std::make_unique<torch::optim::AdamW>(model->parameters(), options)};
  for (std::int64_t step = 0; step < given.steps; ++step) {
    optimizer.zero_grad();
    auto loss = model->loss(text.next(given.batch));
    loss.backward();
    if (optimizer.step(given.batch, loss) == waggle::step_outcome::finished)
      break;
    if (step % 100 == 0)
      std::printf("step %lld: loss %.3f\n", static_cast<long long>(step), loss.item<double>());
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
