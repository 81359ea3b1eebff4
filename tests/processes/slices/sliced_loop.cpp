// One program, two uses, with the same samples in each update:
//
//   waggle-sliced-loop train PEER SIZES OPTIMIZER EPOCHS OUT DATA_DIR [ADDRESS]
//     One of four peers of a run. It contributes its slice of each epoch's samples, and no more.
//   waggle-sliced-loop alone SIZES OPTIMIZER EPOCHS OUT
//     One process that is given all slices of each epoch.
//
// SIZES is "equal" or "varying". Both write their last parameters to the file OUT.

#include <array>
#include <cstdio>
#include <fstream>
#include <limits>

#include "trainer/optimizer.hpp"

namespace {

constexpr std::uint64_t peers = 4;
constexpr std::uint64_t target = 64; // samples: those of all slices of an epoch

struct slice {
  std::uint64_t batch = 0; // determines the samples
  std::int64_t samples = 0;
};

slice slice_of(std::uint64_t peer, std::uint64_t epoch, const std::string& sizes) {
  static constexpr std::array<std::int64_t, peers> varying{1, 24, 9, 30};
  return {peers * epoch + peer, sizes == "equal" ? 16 : varying[(peer + epoch) % peers]};
}

class net_impl : public torch::nn::Module {
public:
  /// The mean loss over the samples of the slice.
  torch::Tensor loss(const slice& given) {
    torch::manual_seed(given.batch);
    auto x = torch::randn({given.samples, 8});
    auto y = torch::randint(4, {given.samples}, torch::kInt64);
    return torch::nn::functional::cross_entropy(second_(torch::tanh(first_(x))), y);
  }

private:
  torch::nn::Linear first_{register_module("first", torch::nn::Linear(8, 16))};
  torch::nn::Linear second_{register_module("second", torch::nn::Linear(16, 4))};
};
TORCH_MODULE_IMPL(net, net_impl);

net new_net() {
  torch::manual_seed(7);
  return {};
}

std::unique_ptr<torch::optim::Optimizer> new_optimizer(const std::string& name, net& model) {
  namespace optim = torch::optim;
  auto parameters = model->parameters();
  if (name == "sgd")
    return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.5));
  if (name == "momentum")
    return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.1).momentum(0.9));
  if (name == "adam")
    return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(0.01));
  if (name == "adamw")
    return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(0.01).weight_decay(0.1));
  throw std::invalid_argument("no optimizer " + name);
}

torch::Tensor flat(const net& model) {
  std::vector<torch::Tensor> all;
  for (const auto& p : model->parameters())
    all.push_back(p.detach().reshape({-1}));
  return torch::cat(all);
}

void write_parameters(const std::string& file, const net& model) {
  std::ofstream out{file};
  out.precision(9);
  auto values = flat(model);
  for (std::int64_t i = 0; i < values.numel(); ++i)
    out << values.data_ptr<float>()[i] << '\n';
}

void train(const std::vector<std::string>& given) {
  auto self = std::stoull(given.at(0));
  auto model = new_net();
  waggle::swarm_options options{.run = "slices",
                                .listen = "127.0.0.1:0",
                                .data_dir = given.at(5),
                                .target_batch_size = target,
                                .max_epochs = std::stoull(given.at(3)),
                                .more = {{"min-peers", std::to_string(peers)}}};
  if (given.size() > 6)
    options.initial_peers = {given[6]};
  auto swarm = waggle::join(options);
  if (!swarm)
    throw std::runtime_error(waggle::to_string(swarm.error()));
  {
    waggle::optimizer optimizer{*swarm, *model, new_optimizer(given.at(2), model)};
    // The updates in the parameters. swarm->epoch() can be one ahead: it counts an update as soon
    // as its round is over, and `step` applies it later.
    std::uint64_t epoch = 0;
    bool contributed = false; // to this epoch
    auto parameters = flat(model);
    for (auto outcome = waggle::step_outcome::held; outcome != waggle::step_outcome::finished;) {
      auto part = slice_of(self, epoch, given.at(1));
      optimizer.zero_grad();
      auto loss = model->loss(part);
      loss.backward();
      // A loss that is not finite counts nowhere: this peer has nothing more to give.
      outcome = optimizer.step(static_cast<std::uint64_t>(part.samples),
                               contributed ? std::numeric_limits<double>::quiet_NaN()
                                           : loss.item<double>());
      contributed = contributed || outcome == waggle::step_outcome::held
                    || outcome == waggle::step_outcome::stepped;
      if (auto now = flat(model); !now.equal(parameters)) {
        parameters = now;
        ++epoch;
        contributed = false;
      }
    }
  }
  write_parameters(given.at(4), model);
}

void train_alone(const std::vector<std::string>& given) {
  auto model = new_net();
  auto optimizer = new_optimizer(given.at(1), model);
  for (std::uint64_t epoch = 0; epoch < std::stoull(given.at(2)); ++epoch) {
    optimizer->zero_grad();
    for (std::uint64_t peer = 0; peer < peers; ++peer) {
      auto part = slice_of(peer, epoch, given.at(0));
      (model->loss(part) * (static_cast<double>(part.samples) / target)).backward();
    }
    optimizer->step();
  }
  write_parameters(given.at(3), model);
}

} // namespace

int main(int argc, char** argv) try {
  torch::set_num_threads(1);
  std::vector<std::string> given(argv + 1, argv + argc);
  auto use = given.at(0);
  given.erase(given.begin());
  if (use == "train")
    train(given);
  else
    train_alone(given);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
