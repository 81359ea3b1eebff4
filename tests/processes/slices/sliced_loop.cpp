// One program, two uses, with the same samples in each update:
//
//   waggle-sliced-loop train MODE SIZES OPTIMIZER EPOCHS OUT PEER DATA_DIR [ADDRESS]
//     One of four peers of a run. It contributes its slice of each epoch's samples, and no more.
//     If MODE is "delayed", the only peer of a run, which contributes all slices.
//   waggle-sliced-loop alone MODE SIZES OPTIMIZER EPOCHS OUT
//     One process that is given all slices of each epoch.
//
// MODE is "current", or "delayed" or "delayed-together": the gradient of each epoch but the first
// is computed before the last update is applied. SIZES is "equal" or "varying". Both uses write
// their last parameters to the file OUT.

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

/// Both uses have these.
struct settings {
  explicit settings(const std::vector<std::string>& given)
    : delayed(given.at(0) != "current"), together(given.at(0) != "delayed"), sizes(given.at(1)),
      optimizer(given.at(2)), epochs(std::stoull(given.at(3))), out(given.at(4)) {}
  bool delayed;
  bool together; // the slices of an epoch are those of four peers
  std::string sizes;
  std::string optimizer;
  std::uint64_t epochs;
  std::string out;
};

void write_parameters(const std::string& file, const net& model) {
  std::ofstream out{file};
  out.precision(9);
  auto values = flat(model);
  for (std::int64_t i = 0; i < values.numel(); ++i)
    out << values.data_ptr<float>()[i] << '\n';
}

constexpr double nothing = std::numeric_limits<double>::quiet_NaN(); // a loss that counts nowhere

/// Adds the mean gradient over all slices of the epoch to .grad; returns their mean loss.
double compute_epoch(net& model, std::uint64_t epoch, const std::string& sizes) {
  double sum = 0;
  for (std::uint64_t peer = 0; peer < peers; ++peer) {
    auto part = slice_of(peer, epoch, sizes);
    auto share = model->loss(part) * (static_cast<double>(part.samples) / target);
    share.backward();
    sum += share.item<double>();
  }
  return sum;
}

/// Contributes a slice to each epoch as soon as the update before is applied.
void train_current(const settings& to, std::uint64_t self, net& model,
                   waggle::optimizer& optimizer) {
  // The updates in the parameters. swarm::epoch() can be one ahead: it counts an update as soon as
  // its round is over, and `step` applies it later.
  std::uint64_t epoch = 0;
  bool contributed = false; // to this epoch
  auto parameters = flat(model);
  for (auto outcome = waggle::step_outcome::held; outcome != waggle::step_outcome::finished;) {
    auto part = slice_of(self, epoch, to.sizes);
    optimizer.zero_grad();
    auto loss = model->loss(part);
    loss.backward();
    outcome = optimizer.step(static_cast<std::uint64_t>(part.samples),
                             contributed ? nothing : loss.item<double>());
    contributed = contributed || outcome == waggle::step_outcome::held
                  || outcome == waggle::step_outcome::stepped;
    if (auto now = flat(model); !now.equal(parameters)) {
      parameters = now;
      ++epoch;
      contributed = false;
    }
  }
}

/// Contributes to each epoch what it has computed before the update of the epoch before is applied,
/// and after that of the one before that. The run applies the update of an epoch when the samples
/// of the next one are complete, so it cannot arrive before this peer has contributed to the next
/// one: what each gradient is computed from does not depend on when messages arrive.
void train_delayed(const settings& to, std::uint64_t self, const waggle::swarm& swarm, net& model,
                   waggle::optimizer& optimizer) {
  std::uint64_t epoch = 0;
  for (auto outcome = waggle::step_outcome::held; outcome != waggle::step_outcome::finished;) {
    auto parameters = flat(model);
    auto part = to.together ? slice_of(self, epoch, to.sizes) : slice{0, target};
    optimizer.zero_grad();
    double loss = 0;
    if (to.together) {
      auto mean = model->loss(part);
      mean.backward();
      loss = mean.item<double>();
    } else {
      loss = compute_epoch(model, epoch, to.sizes);
    }
    outcome = optimizer.step(static_cast<std::uint64_t>(part.samples), loss);
    if (outcome != waggle::step_outcome::held && outcome != waggle::step_outcome::stepped)
      continue;
    // The samples of this epoch are complete when the update before it arrives. Those of the first
    // one, which has no update before it, are when its round is over. Otherwise what comes next
    // would count toward this epoch, too.
    auto complete = [&] { return epoch == 0 ? swarm.epoch() > 0 : !flat(model).equal(parameters); };
    while (!complete() && outcome != waggle::step_outcome::finished)
      outcome = optimizer.step(1, nothing);
    ++epoch;
  }
}

void train(const std::vector<std::string>& given) {
  settings to{given};
  auto self = std::stoull(given.at(5));
  auto model = new_net();
  waggle::swarm_options options{.run = "slices",
                                .listen = "127.0.0.1:0",
                                .data_dir = given.at(6),
                                .target_batch_size = target,
                                .max_epochs = to.epochs,
                                .more = {{"min-peers", to.together ? std::to_string(peers) : "1"}}};
  if (to.delayed)
    options.more["delay-grad-averaging"] = "true";
  if (given.size() > 7)
    options.initial_peers = {given[7]};
  auto swarm = waggle::join(options);
  if (!swarm)
    throw std::runtime_error(waggle::to_string(swarm.error()));
  {
    waggle::optimizer optimizer{*swarm, *model, new_optimizer(to.optimizer, model)};
    if (to.delayed)
      train_delayed(to, self, *swarm, model, optimizer);
    else
      train_current(to, self, model, optimizer);
  }
  write_parameters(to.out, model);
}

std::vector<torch::Tensor> gradient_of(const net& model) {
  std::vector<torch::Tensor> all;
  for (const auto& p : model->parameters())
    all.push_back(p.grad().clone());
  return all;
}

void set_gradient(net& model, const std::vector<torch::Tensor>& to) {
  auto parameters = model->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    parameters[i].mutable_grad() = to[i];
}

void train_alone(const std::vector<std::string>& given) {
  settings to{given};
  auto model = new_net();
  auto optimizer = new_optimizer(to.optimizer, model);
  std::vector<torch::Tensor> older;
  for (std::uint64_t epoch = 0; epoch < to.epochs + to.delayed; ++epoch) {
    optimizer->zero_grad();
    compute_epoch(model, epoch, to.sizes);
    if (to.delayed) {
      auto newer = gradient_of(model);
      if (epoch == 0) {
        older = newer;
        continue; // nothing to apply yet
      }
      set_gradient(model, older);
      older = newer;
    }
    optimizer->step();
  }
  write_parameters(to.out, model);
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
