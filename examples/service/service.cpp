// A service with four peers of two runs in its own actor system and Prometheus registry: two
// training loops, and beside them two peers that share values through the DHT and average a vector.
// Prints one scrape of all four.

#include <cstdio>
#include <filesystem>
#include <future>

#include <caf/all.hpp>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <waggle/averager.hpp>
#include <waggle/dht.hpp>
#include <waggle/loop.hpp>

using namespace std::chrono_literals;
using peers = std::vector<std::string>;

/// A value, or an exception with the reason why there is none.
template <class T>
T need(waggle::result<T> from) {
  if (!from)
    throw std::runtime_error{to_string(from.error())};
  return std::move(from.value());
}

waggle::node start(const peers& through, const waggle::environment& around) {
  return need(waggle::node::start(
    {.run = "bees", .initial_peers = through, .listen = {"127.0.0.1:0"}, .around = around}));
}

/// Publishes its name, and averages its value with the other peer.
void work(const waggle::node& peer, const std::string& name, float value) {
  need(peer.wait_until_ready(10s));
  waggle::dht table{peer};
  need(table.put("members", name, peer.address(), 1min));
  std::vector<float> values(1000, value);
  auto rates = need(waggle::averager::add(peer, {.name = "rates"}));
  auto round = need(rates.average(values, {.timeout = 20s, .expected_peers = 2}));
  auto members = need(table.get("members"));
  std::printf("%s: mean %.1f of %zu peers, %zu members\n", name.c_str(),
              static_cast<double>(values[0]), round.contributors.size(), members.size());
}

/// Moves `x` to `target`, the other loop's towards its own: together to the middle.
void train(const std::string& name, const peers& through, float target,
           const waggle::environment& around, std::promise<std::string> address) {
  auto folder = std::filesystem::temp_directory_path() / ("waggle-service-" + name);
  auto swarm = need(waggle::join({.run = "birds",
                                  .initial_peers = through,
                                  .listen = "127.0.0.1:0",
                                  .data_dir = folder,
                                  .target_batch_size = 64,
                                  .max_epochs = 50,
                                  .resume = false,
                                  .more = {{"min-peers", "2"}},
                                  .around = around}));
  std::vector<float> x(4);
  auto update = [&x](std::span<const float> gradient, double) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] -= 0.2F * gradient[i];
  };
  auto loop = need(waggle::loop::start(swarm, {.parameters = {{"x", {4}, x}}, .update = update}));
  address.set_value(swarm.address());
  waggle::step_outcome last{};
  while (last != waggle::step_outcome::finished)
    last = loop.step(std::vector<float>(x.size(), x[0] - target), 4, 0);
  std::printf("%s: x is %.1f at epoch %zu\n", name.c_str(), static_cast<double>(x[0]),
              static_cast<std::size_t>(swarm.epoch()));
}

int main() {
  caf::actor_system_config config;
  caf::actor_system system{config};
  auto registry = std::make_shared<prometheus::Registry>();
  prometheus::TextSerializer text;
  waggle::environment around{&system, registry, [](waggle::log_level level, std::string_view line) {
                               if (level >= waggle::log_level::warn)
                                 std::fprintf(stderr, "%s\n", std::string{line}.c_str());
                             }};
  {
    auto cat = start({}, around);
    auto dan = start({cat.address()}, around);
    std::promise<std::string> first, second;
    auto address = first.get_future(), started = second.get_future();
    auto ann = std::async(std::launch::async, train, "ann", peers{}, 1.F, around, std::move(first));
    auto bob = std::async(std::launch::async, train, "bob", peers{address.get()}, 3.F, around,
                          std::move(second));
    started.wait();
    std::printf("%s", text.Serialize(registry->Collect()).c_str());
    auto other = std::async(std::launch::async, [&dan] { work(dan, "dan", 30); });
    work(cat, "cat", 10);
    for (auto* each : {&other, &ann, &bob})
      each->get();
  }
  std::printf("after leaving: %zu bytes of metrics\n", text.Serialize(registry->Collect()).size());
}
