// A service with four peers of two runs in its own actor system and Prometheus registry: two
// training loops, and beside them two peers that share values through the DHT and average a vector
// at a given time: one in calls that wait, the other in an actor. Prints one scrape of all four.

#include <cstdio>
#include <filesystem>
#include <future>

#include <caf/all.hpp>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <waggle/actors.hpp>
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

/// Command to the actor: take part in the mean that begins then.
struct average_at {
  waggle::swarm_time begin;
};
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(average_at)

void print_mean(const std::string& name, float value, const waggle::average_report& round) {
  std::printf("%s: mean %.1f of %zu peers\n", name.c_str(), static_cast<double>(value),
              round.contributors.size());
}

/// Publishes its name, and averages its value with the other peer.
void work(const waggle::node& peer, const std::string& name, float value,
          waggle::swarm_time begin) {
  need(peer.wait_until_ready(10s));
  waggle::dht table{peer};
  need(table.put("members", name, peer.address(), 1min));
  std::vector<float> values(1000, value);
  auto rates = need(waggle::averager::add(peer, {.name = "rates"}));
  auto round =
    need(rates.average(values, {.timeout = 60s, .expected_peers = 2, .scheduled_time = begin}));
  print_mean(name, values[0], round);
  std::printf("%zu members\n", need(table.get("members")).size());
}

/// The same as an actor, which starts its peer in its own actor system; after that it waits for
/// nothing. Watches the events of the peer, which leaves after the step, and ends with it.
class member final : public caf::event_based_actor {
public:
  member(caf::actor_config& cfg, std::string name, float value, const std::string& through,
         waggle::environment around)
    : caf::event_based_actor(cfg), name_(std::move(name)), value_(value) {
    around.system = &home_system();
    peer_ = std::make_unique<waggle::node>(start({through}, around));
    need(peer_->wait_until_ready(10s));
    control_ = need(waggle::control_of(*peer_));
    table_ = need(waggle::dht_of(*peer_));
    need(waggle::averager::add(*peer_, {.name = "rates"}));
    rates_ = need(waggle::averager_of(*peer_, "rates"));
  }

  caf::behavior make_behavior() override {
    send(control_, waggle::watch_peer{caf::actor_cast<waggle::event_listener_actor>(this)});
    monitor(control_);
    set_down_handler([this](const caf::down_msg&) {
      std::printf("%s: its peer has ended, after %zu events\n", name_.c_str(), events_);
      quit();
    });
    auto failed = [this](const caf::error& why) {
      std::printf("%s: %s\n", name_.c_str(), to_string(waggle::why_failed(why)).c_str());
      caf::anon_send(control_, waggle::leave_run{"it failed"});
    };
    request(table_, 12s, waggle::put_value{"members", name_, peer_->address(), 1min})
      .then([](waggle::done) {}, failed);
    return {
      [this](const waggle::peer_event&) { ++events_; },
      [this, failed](const average_at& msg) {
        request(rates_, 70s,
                waggle::run_step{{.timeout = 60s, .expected_peers = 2, .scheduled_time = msg.begin},
                                 std::vector<float>(1000, value_)})
          .then(
            [this](const waggle::step_ended& step) {
              print_mean(name_, step.values[0], step.report);
              request(control_, 10s, waggle::leave_run{"its work is done"})
                .then([](const waggle::peer_state&) {});
            },
            failed);
      },
    };
  }

private:
  const std::string name_;
  const float value_;
  std::unique_ptr<waggle::node> peer_;
  waggle::control_actor control_;
  waggle::dht_actor table_;
  waggle::averaging_actor rates_;
  std::size_t events_ = 0;
};

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
    auto dan = system.spawn<member>("dan", 30.F, cat.address(), around);
    std::promise<std::string> first, second;
    auto address = first.get_future(), started = second.get_future();
    auto ann = std::async(std::launch::async, train, "ann", peers{}, 1.F, around, std::move(first));
    auto bob = std::async(std::launch::async, train, "bob", peers{address.get()}, 3.F, around,
                          std::move(second));
    started.wait();
    std::printf("%s", text.Serialize(registry->Collect()).c_str());
    auto soon = std::chrono::system_clock::now().time_since_epoch() + 5s;
    auto begin = waggle::swarm_time_from(std::chrono::nanoseconds{soon}.count());
    caf::anon_send(dan, average_at{begin});
    work(cat, "cat", 10, begin);
    for (auto* each : {&ann, &bob})
      each->get();
    caf::scoped_actor waits{system};
    waits->wait_for(dan);
  }
  std::printf("after leaving: %zu bytes of metrics\n", text.Serialize(registry->Collect()).size());
}
