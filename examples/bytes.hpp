#pragma once

// Shared by plain.cpp and swarm.cpp: a model, its data, and the command line.

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/torch.h>

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

/// xoshiro256** (Blackman and Vigna), seeded by splitmix64.
class randomness {
public:
  explicit randomness(std::uint64_t seed) {
    for (auto& word : state_) {
      auto z = seed += 0x9e3779b97f4a7c15U;
      z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
      z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
      word = z ^ (z >> 31U);
    }
  }
  std::uint64_t below(std::uint64_t bound) {
    auto incomplete = (0 - bound) % bound;
    auto x = next();
    while (x < incomplete)
      x = next();
    return x % bound;
  }

private:
  std::uint64_t next() {
    auto out = std::rotl(state_[1] * 5, 7) * 9;
    auto t = state_[1] << 17U;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return out;
  }
  std::array<std::uint64_t, 4> state_{};
};

/// The training data of `waggle train --data synthetic`: 1 MiB from a Markov chain over 64 letters,
/// in which each letter is followed by one of four letters. `seed` determines the windows, not the
/// text.
class synthetic_text {
public:
  explicit synthetic_text(std::uint64_t seed) : text_(1U << 20U), windows_(seed) {
    randomness random{20'260'101};
    std::array<std::array<std::uint8_t, 4>, 64> followers{};
    for (auto& row : followers)
      for (auto& letter : row)
        letter = static_cast<std::uint8_t>(random.below(64));
    std::uint8_t now = 0;
    for (auto& letter : text_) {
      now = followers[now][random.below(4)];
      letter = 32 + now;
    }
  }
  /// int64 [count, context + 1].
  torch::Tensor next(std::int64_t count) {
    auto out = torch::empty({count, context + 1}, torch::kInt64);
    auto* to = out.data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < count; ++i) {
      auto from = windows_.below(text_.size() - context);
      for (std::int64_t j = 0; j <= context; ++j)
        *to++ = text_[from + static_cast<std::size_t>(j)];
    }
    return out;
  }

private:
  std::vector<std::uint8_t> text_;
  randomness windows_;
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
  for (int i = 1; i < argc; i += 2) {
    std::string name = argv[i];
    if (i + 1 == argc)
      throw std::runtime_error{name + " needs a value"};
    std::string value = argv[i + 1];
    if (name == "--steps")
      a.steps = std::stoll(value);
    else if (name == "--batch")
      a.batch = std::stoll(value);
    else if (name == "--seed")
      a.seed = std::stoull(value);
    else if (name == "--run")
      a.run = value;
    else if (name == "--peer")
      a.peers.push_back(value);
    else if (name == "--data-dir")
      a.data_dir = value;
    else if (name == "--strategy")
      a.strategy = value;
    else if (name == "--target")
      a.target = std::stoull(value);
    else if (name == "--epochs")
      a.epochs = std::stoull(value);
    else if (auto equals = value.find('='); name == "--more" && equals != std::string::npos)
      a.more[value.substr(0, equals)] = value.substr(equals + 1);
    else
      throw std::runtime_error{"there is no option " + name};
  }
  return a;
}

} // namespace example
