#pragma once

// Shared by plain.cpp and swarm.cpp: a model, its data, and the command line.

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "runtime/data/sample_data.hpp"

namespace example {

constexpr std::int64_t context = 16; // number of bytes that a prediction depends on
constexpr std::int64_t width = 32;   // values of the hidden layer

/// Predicts the last byte of a window from the concatenated embeddings of the other bytes. The same
/// model, with the same tensor names, as `waggle train --model mlp --layers 1 --width 32 --context
/// 16`.
class next_byte_impl : public torch::nn::Module {
public:
  torch::Tensor loss(const torch::Tensor& windows) {
    auto x = bytes_(windows.narrow(1, 0, context)).reshape({windows.size(0), -1});
    return torch::nn::functional::cross_entropy(head_(torch::relu(hidden_(x))),
                                                windows.select(1, context));
  }

private:
  torch::nn::Embedding bytes_{register_module("bytes", torch::nn::Embedding(256, 8))};
  torch::nn::Linear hidden_{register_module("hidden0", torch::nn::Linear(context * 8, width))};
  torch::nn::Linear head_{register_module("head", torch::nn::Linear(width, 256))};
};
TORCH_MODULE_IMPL(next_byte, next_byte_impl);

/// The training data of `waggle train --data synthetic`. `seed` determines the windows, not the
/// text.
class synthetic_text {
public:
  explicit synthetic_text(std::uint64_t seed)
    : windows_(waggle::make_synthetic_text(), context + 1, waggle::random_source{seed}) {}
  /// int64 [count, context + 1].
  torch::Tensor next(std::int64_t count) {
    auto out = torch::empty({count, context + 1}, torch::kUInt8);
    for (std::int64_t i = 0; i < count; ++i)
      (void)windows_.read_next(
        std::as_writable_bytes(std::span{out[i].data_ptr<std::uint8_t>(), context + 1}));
    return out.to(torch::kInt64);
  }

private:
  waggle::window_sampler windows_;
};

struct arguments {
  std::int64_t steps = 2000;
  std::int64_t batch = 8; // samples per step
  std::uint64_t seed = 1;
  // Used by swarm.cpp only.
  std::string run = "waggle";
  std::vector<std::string> peers;
  std::string data_dir;
  std::string strategy = "collaborative";
  std::uint64_t target = 64; // samples of the whole swarm per update
  std::uint64_t epochs = 0;  // updates of the run; 0: unlimited
  /// Further options of `waggle train`, here those of the model; `--more NAME=VALUE` adds one.
  std::map<std::string, std::string> more{{"layers", "1"}, {"width", "32"}, {"context", "16"}};
};

/// Throws std::runtime_error for unknown options.
inline arguments read(int argc, char** argv) {
  arguments a;
  const std::map<std::string, std::function<void(const std::string&)>> options{
    {"--steps", [&](const auto& value) { a.steps = std::stoll(value); }},
    {"--batch", [&](const auto& value) { a.batch = std::stoll(value); }},
    {"--seed", [&](const auto& value) { a.seed = std::stoull(value); }},
    {"--run", [&](const auto& value) { a.run = value; }},
    {"--peer", [&](const auto& value) { a.peers.push_back(value); }},
    {"--data-dir", [&](const auto& value) { a.data_dir = value; }},
    {"--strategy", [&](const auto& value) { a.strategy = value; }},
    {"--target", [&](const auto& value) { a.target = std::stoull(value); }},
    {"--epochs", [&](const auto& value) { a.epochs = std::stoull(value); }},
    {"--more", [&](const auto& value) {
       auto equals = value.find('=');
       if (equals == std::string::npos)
         throw std::runtime_error{"--more needs NAME=VALUE, not " + value};
       a.more[value.substr(0, equals)] = value.substr(equals + 1);
     }}};
  for (int i = 1; i < argc; i += 2) {
    auto option = options.find(argv[i]);
    if (option == options.end())
      throw std::runtime_error{std::string{"there is no option "} + argv[i]};
    if (i + 1 == argc)
      throw std::runtime_error{option->first + " needs a value"};
    option->second(argv[i + 1]);
  }
  return a;
}

} // namespace example
