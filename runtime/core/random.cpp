#include "runtime/core/random.hpp"

#include <bit>
#include <cstring>
#include <random>

namespace waggle {

namespace {

std::uint64_t splitmix(std::uint64_t& x) {
  x += 0x9e3779b97f4a7c15U;
  auto z = x;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

} // namespace

random_source::random_source(std::uint64_t seed) : seed_(seed) {
  for (auto& word : state_)
    word = splitmix(seed);
}

std::uint64_t random_source::next() {
  auto result = std::rotl(state_[1] * 5, 7) * 9;
  auto t = state_[1] << 17U;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t random_source::below(std::uint64_t bound) {
  // Rejects the incomplete last interval, so that every value is equally likely.
  auto threshold = (0 - bound) % bound;
  for (;;) {
    auto x = next();
    if (x >= threshold)
      return x % bound;
  }
}

double random_source::unit() {
  return static_cast<double>(next() >> 11U) * 0x1.0p-53;
}

void random_source::fill(std::span<std::byte> out) {
  while (!out.empty()) {
    auto word = next();
    auto n = std::min(out.size(), sizeof word);
    std::memcpy(out.data(), &word, n);
    out = out.subspan(n);
  }
}

random_source random_source::fork(std::string_view name) const {
  std::uint64_t h = 0xcbf29ce484222325U ^ seed_; // FNV-1a of the name, started from the seed
  for (char c : name)
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return random_source{splitmix(h)};
}

std::uint64_t entropy_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

} // namespace waggle
