// A step of an averager with 50 tensors of float32, float64 and float16, beside one of as many
// bytes in one vector of float32, in turn: four peers of one process.
//
//     tensors_bench [MiB] [steps]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "waggle/averager.hpp"
#include "waggle/node.hpp"

namespace {

using namespace waggle;

constexpr std::size_t peers_of_run = 4;
constexpr tensor_type types[]{tensor_type::float32, tensor_type::float64, tensor_type::float16};

template <class T>
T need(result<T> what) {
  if (what)
    return std::move(*what);
  std::fprintf(stderr, "%s\n", to_string(what.error()).c_str());
  std::exit(1);
}

/// Tensors of one peer, and their memory.
struct memory_of {
  std::vector<std::vector<double>> held;
  std::vector<averaged_tensor> tensors;

  void add(tensor_type type, std::uint64_t elements, std::size_t peer) {
    auto& all = held.emplace_back(elements * size_of(type) / sizeof(double) + 1);
    auto value = [&](std::uint64_t i) { return static_cast<double>((i * 31 + peer) % 97) / 97; };
    if (type == tensor_type::float64)
      for (std::uint64_t i = 0; i < elements; ++i)
        all[i] = value(i);
    else if (type == tensor_type::float32)
      for (std::uint64_t i = 0; i < elements; ++i)
        reinterpret_cast<float*>(all.data())[i] = static_cast<float>(value(i));
    else // small numbers
      for (std::uint64_t i = 0; i < elements; ++i)
        reinterpret_cast<std::uint16_t*>(all.data())[i] =
          static_cast<std::uint16_t>(0x3000 + (i * 31 + peer) % 97);
    tensors.push_back({"t" + std::to_string(tensors.size()), type, {elements}, all.data()});
  }
};

struct way {
  const char* name;
  std::vector<averager> of{}; // by peer
  std::vector<double> milliseconds{};

  void step() {
    std::vector<std::thread> threads;
    auto began = std::chrono::steady_clock::now();
    for (auto& each : of)
      threads.emplace_back([&each] {
        need(each.step({.timeout = std::chrono::minutes{2},
                        .expected_peers = peers_of_run,
                        .keep_group = true}));
      });
    for (auto& thread : threads)
      thread.join();
    std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    milliseconds.push_back(took.count());
  }
  [[nodiscard]] double median() {
    std::ranges::sort(milliseconds);
    return milliseconds[milliseconds.size() / 2];
  }
};

} // namespace

int main(int count, char** given) {
  auto bytes = static_cast<std::uint64_t>(count > 1 ? std::atoi(given[1]) : 64) << 20U;
  auto steps = count > 2 ? std::atoi(given[2]) : 15;
  std::vector<node> peers;
  for (std::size_t i = 0; i < peers_of_run; ++i) {
    node_options options{.run = "tensors", .listen = {"127.0.0.1:0"}, .log_level = "error"};
    if (i > 0)
      options.initial_peers = {peers.front().address()};
    peers.push_back(need(node::start(options)));
    need(peers.back().wait_until_ready(std::chrono::seconds{20}));
  }
  way flat{"one vector"};
  way list{"50 tensors"};
  std::vector<memory_of> memory(2 * peers_of_run);
  for (std::size_t i = 0; i < peers_of_run; ++i) {
    memory[2 * i].add(tensor_type::float32, bytes / sizeof(float), i);
    std::uint64_t of_each = 0; // bytes for one value of each tensor
    for (std::size_t t = 0; t < 50; ++t)
      of_each += size_of(types[t % 3]);
    for (std::size_t t = 0; t < 50; ++t)
      memory[2 * i + 1].add(types[t % 3], bytes / of_each, i);
    averager_options how{.name = "flat",
                         .target_group_size = peers_of_run,
                         .matchmaking_time = std::chrono::seconds{3}};
    flat.of.push_back(need(averager::add(peers[i], how, memory[2 * i].tensors)));
    how.name = "list";
    list.of.push_back(need(averager::add(peers[i], how, memory[2 * i + 1].tensors)));
  }
  for (int i = 0; i <= steps; ++i) {
    flat.step();
    list.step();
    if (i == 0) // finds the groups
      flat.milliseconds.clear(), list.milliseconds.clear();
  }
  for (auto* each : {&flat, &list}) {
    auto median = each->median();
    std::printf("%s: %.1f ms, at least %.1f\n", each->name, median, each->milliseconds.front());
  }
  std::printf("ratio %.2f\n", list.median() / flat.median());
}
